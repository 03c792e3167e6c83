"""The settings that a result takes from its recipe."""

import json

import pytest
import torch

from inbedder import InBedder
from inbedder.backbones.late_interaction import find_language_directions
from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.train_answering import finetune


def train(model, data, output, **settings):
    recipe = {
        "model": str(model),
        "template": "compact",
        "max_length": 96,
        "data": {"folder": str(data), "sources": ["qa.jsonl"], "cache": None},
        "training": {"output": str(output), "max_steps": 1, "batch_size": 4},
        **settings,
    }
    return finetune(parse_recipe(recipe))


def test_the_options_of_a_recipe_are_those_of_its_result(make_model, data, tmp_path):
    model, second = str(make_model("llama")), str(make_model("bert"))
    options = {"beside": second, "max_new_tokens": 5, "normalize": True}
    folder = train(model, data, tmp_path / "run", lora={"r": 4, "alpha": 8, "tokens": "question"}, options=options)
    assert json.loads((folder / "inbedder.json").read_text()) == {
        "base": model,
        "template": "compact",
        "question_adapter": True,
        "beside": second,
        "max_new_tokens": 5,
        "normalize": True,
    }
    model = InBedder(folder)
    assert model.options.encoding.max_new_tokens == 5
    assert model.dimension == InBedder(folder, beside="none").dimension + InBedder(second).dimension


def test_the_directions_of_languages_are_found_saved_and_not_trained(make_model, data, tmp_path):
    model = str(make_model("bert"))
    rows = [
        {"input": f"{word} {number}", "language": language, "corpus": "all"}
        for language, word in {"one": "love", "two": "dogs", "three": "the cats"}.items()
        for number in range(4)
    ]
    (tmp_path / "parallel.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lora = {"r": 4, "alpha": 8, "modules_to_save": ["transform"]}
    settings = {"late_interaction": True, "lora": lora, "languages": {"path": str(tmp_path / "parallel.jsonl"), "directions": 2}}
    folder = train(model, data, tmp_path / "run", **settings)
    assert json.loads((folder / "inbedder.json").read_text())["language_directions"] == 2
    directions = InBedder(folder, dtype="float32").backbone.model.language_filter.directions.detach()
    vectors = torch.from_numpy(InBedder(model, backbone="embedding", pooling="text-mean").encode([row["input"] for row in rows]))
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    expected = find_language_directions(vectors, [row["language"] for row in rows], ["all"] * 12, 2)[1]
    assert torch.allclose((directions @ expected.T).abs(), torch.eye(2), atol=1e-3)
    with pytest.raises(RecipeError, match=r"set languages.directions to that number or fewer"):
        train(
            model,
            data,
            tmp_path / "many",
            **settings | {"languages": {"path": str(tmp_path / "parallel.jsonl"), "directions": 3}},
        )


def test_an_option_goes_before_what_follows_from_the_training(make_model, data, tmp_path):
    model = str(make_model("bert"))
    lora = {"r": 4, "alpha": 8, "modules_to_save": ["transform"]}
    for options, normalizes in (({}, True), ({"normalize": False}, False)):
        folder = train(model, data, tmp_path / str(normalizes), late_interaction=True, lora=lora, options=options)
        settings = json.loads((folder / "inbedder.json").read_text())
        assert (settings["normalize"], settings["base_encoder"]) == (normalizes, model)
