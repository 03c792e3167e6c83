"""Weights that are published as ``pytorch_model.bin`` load to the vectors of their safetensors."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.torch_version import TorchVersion
from transformers import modeling_utils

from inbedder import InBedder
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.backbones.revision import get_files_revision, get_weights_revision
from inbedder.errors import ModelError
from tests.backbones.checkpoints import COMMIT, FORMS, Marking, needs_pickles, pickle_weights, shard_weights
from tests.backbones.test_file_checks import make_adapter
from tests.conftest import TEXTS

pytestmark = needs_pickles


@pytest.mark.parametrize(
    ("family", "form"),
    [("bert", "zip"), ("bert", "legacy"), ("bert", "shards"), ("opt", "zip"), ("opt", "shards"), ("t5", "zip"), ("gpt2", "zip")],
)
def test_pickled_weights_give_the_vectors_of_safetensors(make_model, tmp_path, family, form):
    expected = InBedder(make_model(family)).encode(TEXTS, "What?")
    copy = Path(shutil.copytree(make_model(family), tmp_path / "copy"))
    FORMS[form](copy)
    assert np.array_equal(InBedder(copy).encode(TEXTS, "What?"), expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_hub_model_with_pickled_weights_alone_loads(make_model, fill_cache, form):
    FORMS[form](fill_cache(make_model("opt")))
    model = InBedder("someone/model")
    assert np.array_equal(model.encode(TEXTS, "What?"), InBedder(make_model("opt")).encode(TEXTS, "What?"))
    assert get_weights_revision(model.backbone) == COMMIT


def test_no_thread_asks_the_hub_to_convert_pickled_weights(make_model, fill_cache, monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("transformers asked the hub for a conversion")

    monkeypatch.setattr(modeling_utils, "is_offline_mode", lambda: False)
    monkeypatch.delenv("DISABLE_SAFETENSORS_CONVERSION", raising=False)
    for name in ("auto_conversion", "has_file", "Thread"):
        monkeypatch.setattr(modeling_utils, name, refuse)
    pickle_weights(fill_cache(make_model("opt")))
    assert InBedder("someone/model").encode("a", "What?").shape == (32,)


def test_a_pickled_adapter_gives_the_vectors_of_safetensors(make_model, tmp_path):
    adapter = make_adapter(make_model("bert"), tmp_path / "adapter")
    tensors = {name: torch.full_like(tensor, 0.1) for name, tensor in load_file(adapter / "adapter_model.safetensors").items()}
    save_file(tensors, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    expected = InBedder(adapter).encode(TEXTS, "What?")
    pickle_weights(adapter, "adapter_model")
    assert np.array_equal(InBedder(adapter).encode(TEXTS, "What?"), expected)
    assert not np.allclose(InBedder(make_model("bert")).encode(TEXTS, "What?"), expected)


def test_the_revision_hashes_pickled_weights(make_model, tmp_path):
    copy = Path(shutil.copytree(make_model("bert"), tmp_path / "copy"))
    path = pickle_weights(copy)
    before = get_weights_revision(InBedder(copy).backbone), get_files_revision(str(copy))
    torch.save({name: tensor + 1 for name, tensor in torch.load(path, weights_only=True).items()}, path)
    after = get_weights_revision(InBedder(copy).backbone), get_files_revision(str(copy))
    assert len({*before, *after}) == 4
    torch.save({}, copy / "training_args.bin")
    assert get_weights_revision(InBedder(copy).backbone) == after[0]


def test_a_configuration_larger_than_its_pickled_weights_is_refused(make_model, tmp_path):
    copy = Path(shutil.copytree(make_model("opt"), tmp_path / "copy"))
    pickle_weights(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**6}))
    with pytest.raises(ModelError, match=r"asks for 1,000,000 layers .*, and its weights have only \d+ tensors"):
        InBedder(copy)


def test_pickles_need_a_torch_whose_loader_has_no_known_flaw(tmp_path, monkeypatch):
    torch.save({"a": torch.ones(1)}, tmp_path / "a.bin")
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.9.1"))
    with pytest.raises(ModelError, match=r"torch 2.9.1 can be attacked .*Update torch to 2.10 or later"):
        read_pickled_weights([tmp_path / "a.bin"])


def make_state(kind, marker):
    """Make what a pickle holds that is no table of tensors."""
    return {
        "a module": torch.nn.Linear(2, 2),
        "a number": {"a": torch.ones(1), "epoch": 3},
        "no values": {"a": torch.ones(1, device="meta")},
        "code": Marking(marker),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("a module", "torch does not read .*torch.nn.modules.linear.Linear was not an allowed global"),
        ("a number", "is not a table of tensors by name"),
        ("no values", "is not a table of tensors by name"),
        ("code", "torch does not read .*io.open was not an allowed global"),
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_of_anything_but_tensors_is_refused(tmp_path, kind, message, is_zip):
    torch.save(make_state(kind, tmp_path / "marker"), tmp_path / "a.bin", _use_new_zipfile_serialization=is_zip)
    with pytest.raises(ModelError, match=message) as refusal:
        read_pickled_weights([tmp_path / "a.bin"])
    assert "weights_only" not in str(refusal.value)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"torch does not read .*a\.bin: .*download it again"),
        (b"damaged", r"torch does not read .*a\.bin: .*download it again"),
        (b"PK\x03\x04damaged", r"a\.bin is damaged \(File is not a zip file\)\. Download it again"),
    ],
)
def test_a_damaged_pickle_is_named(tmp_path, content, message):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_pickled_weights([tmp_path / "a.bin"])


def test_a_missing_shard_is_named(make_model, tmp_path):
    copy = Path(shutil.copytree(make_model("bert"), tmp_path / "copy"))
    shard_weights(copy)
    (copy / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(
        ModelError, match=r"pytorch_model-00002-of-00002.bin, which pytorch_model.bin.index.json names, is missing"
    ):
        InBedder(copy)


def test_a_compressed_file_is_refused(tmp_path):
    torch.save({"a": torch.ones(100)}, tmp_path / "stored.bin")
    with (
        zipfile.ZipFile(tmp_path / "stored.bin") as stored,
        zipfile.ZipFile(tmp_path / "a.bin", "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for name in stored.namelist():
            file.writestr(name, stored.read(name))
    with pytest.raises(ModelError, match=r"a\.bin is compressed"):
        read_pickled_weights([tmp_path / "a.bin"])


def test_a_tensor_larger_than_its_file_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "a.bin")
    with pytest.raises(ModelError, match="not a table of tensors"):
        read_pickled_weights([tmp_path / "a.bin"])


def test_a_git_lfs_pointer_is_named(tmp_path):
    (tmp_path / "a.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    with pytest.raises(ModelError, match="git-lfs pointer"):
        read_pickled_weights([tmp_path / "a.bin"])


@pytest.mark.parametrize("form", ["variant beside it", "shard of another name"])
def test_the_revision_hashes_the_pickles_that_are_read(make_model, tmp_path, form):
    copy = Path(shutil.copytree(make_model("opt"), tmp_path / "copy"))
    if form == "variant beside it":
        pickle_weights(copy)
        save_file({"a": torch.ones(1)}, copy / "model.fp16.safetensors")
        file = copy / "pytorch_model.bin"
    else:
        file = copy / "weights.bin"
        tensors = load_file(copy / "model.safetensors")
        (copy / "model.safetensors").unlink()
        torch.save(tensors, file)
        index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "weights.bin")}
        (copy / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    before = get_weights_revision(InBedder(copy).backbone)
    torch.save({name: 3 * tensor for name, tensor in torch.load(file).items()}, file)
    assert get_weights_revision(InBedder(copy).backbone) != before
