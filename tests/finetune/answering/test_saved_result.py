"""The settings that a result takes from its recipe."""

import json

from inbedder import InBedder
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


def test_an_option_goes_before_what_follows_from_the_training(make_model, data, tmp_path):
    model = str(make_model("bert"))
    lora = {"r": 4, "alpha": 8, "modules_to_save": ["transform"]}
    for options, normalizes in (({}, True), ({"normalize": False}, False)):
        folder = train(model, data, tmp_path / str(normalizes), late_interaction=True, lora=lora, options=options)
        settings = json.loads((folder / "inbedder.json").read_text())
        assert (settings["normalize"], settings["base_encoder"]) == (normalizes, model)
