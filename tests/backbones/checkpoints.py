"""Helpers for tests of sentence-transformers checkpoints and of pickles."""

import json
import shutil
from contextlib import contextmanager

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer


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


def pickle_weights(folder, name=None, **options):
    """Replace a folder's safetensors by the pickle that older libraries wrote, such as pytorch_model.bin; return its path."""
    weights = folder / f"{name or 'model'}.safetensors"
    path = folder / f"{name or 'pytorch_model'}.bin"
    torch.save(load_file(weights), path, **options)
    weights.unlink()
    return path


@contextmanager
def nothing_unpickled(monkeypatch, marker):
    """Fail if a pickle is opened within the block, even with ``weights_only``."""

    def refuse(*_args, **_options):
        raise AssertionError("a pickle was opened")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", refuse)
        yield
    assert not marker.exists()
