"""The settings that a result takes from its recipe."""

import json

from inbedder import InBedder
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.train_answering import finetune


def test_the_options_of_a_recipe_are_those_of_its_result(make_model, data, tmp_path):
    second = str(make_model("bert"))
    recipe = {
        "model": str(make_model("llama")),
        "template": "compact",
        "max_length": 96,
        "data": {"folder": str(data), "sources": ["qa.jsonl"], "cache": None},
        "training": {"output": str(tmp_path / "run"), "max_steps": 1, "batch_size": 4},
        "lora": {"r": 4, "alpha": 8, "tokens": "question"},
        "options": {"beside": second, "max_new_tokens": 5, "normalize": True},
    }
    folder = finetune(parse_recipe(recipe))
    assert json.loads((folder / "inbedder.json").read_text()) == {
        "base": recipe["model"],
        "template": "compact",
        "question_adapter": True,
        "beside": second,
        "max_new_tokens": 5,
        "normalize": True,
    }
    model = InBedder(folder)
    assert model.options.encoding.max_new_tokens == 5
    assert model.dimension == InBedder(folder, beside="none").dimension + InBedder(second).dimension
