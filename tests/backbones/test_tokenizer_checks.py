import json
import shutil

import pytest

from inbedder import InBedder
from inbedder.errors import ModelError


@pytest.fixture
def copy_of(make_model, tmp_path):
    """Return a function that copies a tiny model and changes its tokenizer."""

    def copy(change):
        folder = shutil.copytree(make_model("bert"), tmp_path / "copy")
        settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        change(settings)
        (folder / "tokenizer.json").write_text(json.dumps(settings), encoding="utf-8")
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return copy


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


@pytest.mark.parametrize("pattern", [{"String": "a"}, {"Regex": "a"}])
def test_replacements_that_make_a_text_much_longer_are_refused(copy_of, pattern):
    def change(settings):
        settings["normalizer"] = {"type": "Sequence", "normalizers": [replace(pattern, "a" * 20)] * 2}

    with pytest.raises(ModelError, match="make a text 400 times as long"):
        InBedder(copy_of(change))


def test_a_replacement_that_keeps_the_length_is_taken(copy_of):
    folder = copy_of(lambda settings: settings.update(normalizer=replace({"String": "aa"}, "bb")))
    assert InBedder(folder).encode("aa", "What?").shape


def test_a_pattern_that_runs_too_long_is_a_model_error(copy_of):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    model = InBedder(copy_of(lambda settings: settings.update(pre_tokenizer=split)))
    with pytest.raises(ModelError, match=r"The tokenizer of .* fails on a text"):
        model.encode("a" * 64 + "b", "What?")


@pytest.mark.parametrize("number", [10**9, 31_000])
def test_a_number_beyond_the_models_vocabulary_is_refused(copy_of, number):
    with pytest.raises(ModelError, match=r"the files belong to two models|missing or unusable"):
        InBedder(copy_of(lambda settings: settings["model"]["vocab"].update(zzz=number)))
