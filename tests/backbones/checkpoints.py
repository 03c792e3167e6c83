"""Helpers for tests of sentence-transformers checkpoints and of pickles."""

import json
import shutil
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch.torch_version import TorchVersion

from inbedder.backbones.pickled_weights import MIN_TORCH_VERSION

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def encode_reference(folder, texts, prompt=None):
    return SentenceTransformer(str(folder), device="cpu").encode(texts, prompt=prompt)


def copy_with_settings(folder, tmp_path, file, **values):
    """Copy a checkpoint and change settings in one of its files; None removes a setting."""
    copy = tmp_path / "changed"
    if not copy.is_dir():
        shutil.copytree(folder, copy)
    settings = json.loads((copy / file).read_text()) if (copy / file).is_file() else {}
    settings = {key: value for key, value in {**settings, **values}.items() if value is not None}
    (copy / file).write_text(json.dumps(settings))
    return copy


class Marking:
    """An object that creates a file when unpickled; ``torch.load(weights_only=True)`` opens the pickle before refusing it."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def plant(path, marker):
    """Write a pickle with torch.save that creates the marker file when it is opened."""
    torch.save(Marking(marker), path)


needs_pickles = pytest.mark.skipif(
    TorchVersion(torch.__version__) < MIN_TORCH_VERSION, reason="this torch's restricted loader has known flaws"
)


def pickle_weights(folder, name=None, **options):
    """Replace a folder's safetensors by the pickle that older libraries wrote, such as pytorch_model.bin; return its path."""
    if needs_pickles.args[0]:
        pytest.skip(needs_pickles.kwargs["reason"])
    weights = folder / f"{name or 'model'}.safetensors"
    path = folder / f"{name or 'pytorch_model'}.bin"
    torch.save(load_file(weights), path, **options)
    weights.unlink()
    return path


def shard_weights(folder):
    """Replace a folder's safetensors by two pickled shards and their index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
    for shard, shard_names in shards.items():
        torch.save({name: tensors[name] for name in shard_names}, folder / shard)
    table = {name: shard for shard, shard_names in shards.items() for name in shard_names}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": table}))
    (folder / "model.safetensors").unlink()


FORMS = {
    "zip": pickle_weights,
    "legacy": lambda folder: pickle_weights(folder, _use_new_zipfile_serialization=False),
    "shards": shard_weights,
}


@contextmanager
def nothing_unpickled(monkeypatch, marker):
    """Fail if a pickle is opened within the block, even with ``weights_only``."""

    def refuse(*_args, **_options):
        raise AssertionError("a pickle was opened")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", refuse)
        yield
    assert not marker.exists()
