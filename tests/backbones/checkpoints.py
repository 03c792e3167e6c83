"""What tests do with checkpoints of sentence-transformers."""

import json
import shutil
from contextlib import contextmanager

import torch
from sentence_transformers import SentenceTransformer


def theirs(folder, texts, prompt=None):
    return SentenceTransformer(str(folder), device="cpu").encode(texts, prompt=prompt)


def changed(folder, tmp_path, file, **values):
    """A copy of a checkpoint with other settings in one of its files; None takes one away."""
    copy = tmp_path / "changed"
    if not copy.is_dir():
        shutil.copytree(folder, copy)
    settings = json.loads((copy / file).read_text()) if (copy / file).is_file() else {}
    settings = {key: value for key, value in {**settings, **values}.items() if value is not None}
    (copy / file).write_text(json.dumps(settings))
    return copy


class Marking:
    """Unpickled, it leaves a file; ``torch.load(weights_only=True)`` would refuse it, and open it first."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def plant(path, marker):
    """A pickle that leaves a marker behind where anything opens it, in the form that torch.save gives it."""
    torch.save(Marking(marker), path)


@contextmanager
def nothing_unpickled(monkeypatch, marker):
    """Within the block no pickle may be opened, not even with ``weights_only``."""

    def refuse(*_args, **_options):
        raise AssertionError("a pickle was opened")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", refuse)
        yield
    assert not marker.exists()
