"""What tests do with checkpoints of sentence-transformers."""

import json
import shutil

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
