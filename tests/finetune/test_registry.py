from pathlib import Path

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering import train_answering as answering
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe
from inbedder_finetune.registry import read_method

RECIPES = Path(__file__).parents[1] / "data" / "recipes"


def test_the_default_method_is_answering():
    method, recipe = read_method(RECIPES / "tiny-opt.yaml")
    assert method is answering
    assert isinstance(recipe, AnsweringRecipe)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(RecipeError, match=r"'guessing'; choose one of: answering"):
        read_method(RECIPES / "tiny-opt.yaml", ["method=guessing"])
