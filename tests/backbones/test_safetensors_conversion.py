"""A converted checkpoint has safetensors alone and gives the same vectors."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.backbones import safetensors_conversion
from inbedder.backbones.safetensors_conversion import convert_to_safetensors
from inbedder.cli import app
from inbedder.errors import InputError, ModelError
from tests.backbones.checkpoints import FORMS, needs_pickles, pickle_weights, plant, shard_weights
from tests.backbones.test_file_checks import make_adapter
from tests.conftest import TEXTS

pytestmark = needs_pickles


def list_files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.parametrize("form", FORMS)
def test_a_converted_model_gives_the_same_vectors(make_model, tmp_path, form):
    source = Path(shutil.copytree(make_model("t5"), tmp_path / "source"))
    FORMS[form](source)
    (source / "training_args.bin").write_bytes(b"a pickle")
    target = convert_to_safetensors(str(source), tmp_path / "new" / "target")
    assert np.array_equal(InBedder(target).encode(TEXTS, "What?"), InBedder(make_model("t5")).encode(TEXTS, "What?"))
    assert not [name for name in list_files(target) if ".bin" in name]
    assert {"checksums.json", "config.json", "tokenizer.json"} < set(list_files(target))


def test_a_converted_sentence_model_gives_the_same_vectors(make_sentence_model, tmp_path):
    source = Path(shutil.copytree(make_sentence_model(dense=True), tmp_path / "source"))
    pickle_weights(source / "2_Dense")  # some checkpoints have both kinds
    target = convert_to_safetensors(str(source), tmp_path / "target")
    assert np.array_equal(InBedder(target).encode(TEXTS), InBedder(make_sentence_model(dense=True)).encode(TEXTS))
    assert "2_Dense/model.safetensors" in list_files(target)


def test_a_converted_adapter_gives_the_same_vectors(make_model, tmp_path):
    adapter = make_adapter(make_model("bert"), tmp_path / "adapter")
    expected = InBedder(adapter).encode(TEXTS, "What?")
    pickle_weights(adapter, "adapter_model")
    target = convert_to_safetensors(str(adapter), tmp_path / "target")
    assert np.array_equal(InBedder(target).encode(TEXTS, "What?"), expected)


def test_a_hub_model_is_converted_by_the_command(make_model, fill_cache, tmp_path):
    pickle_weights(fill_cache(make_model("opt")))
    result = CliRunner().invoke(app, ["models", "convert", "someone/model", "-o", str(tmp_path / "target")])
    assert result.exit_code == 0, result.output
    expected = InBedder(make_model("opt")).encode(TEXTS, "What?")
    assert np.array_equal(InBedder(tmp_path / "target").encode(TEXTS, "What?"), expected)


def test_tied_weights_and_views_are_written_under_each_name(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    matrix = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": matrix, "b": matrix, "row": matrix[1], "turned": matrix.T}, source / "pytorch_model.bin")
    tensors = load_file(convert_to_safetensors(str(source), tmp_path / "target") / "model.safetensors")
    assert all(torch.equal(tensors[name], matrix) for name in "ab")
    assert torch.equal(tensors["row"], matrix[1]) and torch.equal(tensors["turned"], matrix.T)


def test_a_target_with_files_and_a_model_without_pickles_are_refused(make_model, tmp_path):
    with pytest.raises(InputError, match="has no pickled weights, so there is nothing to convert"):
        convert_to_safetensors(make_model("opt"), tmp_path / "target")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"is not empty. Choose a new folder"):
        convert_to_safetensors(make_model("opt"), tmp_path / "full")


def test_a_failed_conversion_leaves_nothing_behind(make_model, tmp_path, monkeypatch):
    source = Path(shutil.copytree(make_model("bert"), tmp_path / "source"))
    shard_weights(source)
    plant(source / "pytorch_model-00002-of-00002.bin", tmp_path / "marker")
    with pytest.raises(ModelError, match="torch does not read"):
        convert_to_safetensors(str(source), tmp_path / "target")
    assert not (tmp_path / "marker").exists()

    def fill_disk(_tensors, path, metadata):
        path.write_bytes(b"part")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(safetensors_conversion, "save_file", fill_disk)
    with pytest.raises(InputError, match="No space left on device"):
        convert_to_safetensors(str(source), tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_all_files_but_other_weights_are_copied(make_model, tmp_path):
    copy = Path(shutil.copytree(make_model("opt"), tmp_path / "copy"))
    pickle_weights(copy)
    for file in ("LICENSE", "source.spm", "tf_model.h5", "optimizer.pt"):
        (copy / file).write_text("a")
    files = {path.name for path in convert_to_safetensors(str(copy), tmp_path / "new").iterdir()}
    assert {"LICENSE", "source.spm", "model.safetensors"} <= files and not {"tf_model.h5", "optimizer.pt"} & files


def test_a_target_inside_the_model_and_a_file_are_refused(make_model, tmp_path):
    copy = Path(shutil.copytree(make_model("opt"), tmp_path / "copy"))
    pickle_weights(copy)
    with pytest.raises(InputError, match="Choose a folder outside it"):
        convert_to_safetensors(str(copy), copy / "new")
    with pytest.raises(ModelError, match="is a file"):
        convert_to_safetensors(str(copy / "config.json"), tmp_path / "new")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_module_that_is_no_folder_of_the_model_is_refused(make_model, tmp_path, kind):
    copy = Path(shutil.copytree(make_model("opt"), tmp_path / "copy"))
    pickle_weights(copy)
    (tmp_path / "elsewhere").mkdir()
    (copy / "link").symlink_to(tmp_path / "elsewhere")
    modules = [{"type": "sentence_transformers.models.Pooling", "path": {"file": "config.json", "link": "link"}[kind]}]
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="is not a folder of the model"):
        convert_to_safetensors(str(copy), tmp_path / "new")
    assert not (tmp_path / "new").exists()
