"""SHA-256 of a model's files in ``checksums.json``: written when the model is saved, checked when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from inbedder.errors import ModelError
from inbedder.io.files import atomic_write, hash_file, is_inside

CHECKSUMS = "checksums.json"
_FILE_PATTERNS = ("*.safetensors", "*config*.json", "tokenizer.json", "modules.json", "inbedder.json", "conditional.json")
"""The files that determine what a model computes."""

FileState = tuple[str, int, int, int]
"""Path, inode, size in bytes and modification time in nanoseconds of a file."""


def get_file_state(path: Path) -> FileState:
    """Return a file's path, inode, size and modification time, which show whether it was rewritten."""
    stat = path.stat()
    return str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=1024)
def _hash_state(state: FileState) -> str:
    return hash_file(Path(state[0]))


def get_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, cached until the file changes."""
    return _hash_state(get_file_state(path))


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json`` for the model in a folder and in its modules' folders, except checkpoints.

    Args:
        folder: The saved model.
    """
    paths = (path for parent in (folder, *folder.iterdir()) for pattern in _FILE_PATTERNS for path in parent.glob(pattern))
    files = sorted({path for path in paths if path.is_file() and not path.parent.name.startswith("checkpoint-")})
    with atomic_write(folder / CHECKSUMS) as temporary:
        digests = {path.relative_to(folder).as_posix(): hash_file(path) for path in files}
        temporary.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check_checksums(find: Callable[[str], Path | None], *, required: bool = False) -> None:
    """Reject a model whose files, found by name with ``find``, differ from its checksums, or has none if they are required."""
    path = find(CHECKSUMS)
    if path is None:
        if required:
            raise ModelError(f"The model has no {CHECKSUMS}. Reinstall inbedder: pip install --force-reinstall inbedder")
        return
    remedy = "reinstall inbedder" if required else f"train or download the model again, or remove {path} if you changed it"
    try:
        digests = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(digests, dict) or not all(
            isinstance(digest, str) and is_inside(file) for file, digest in digests.items()
        ):
            raise ValueError("it must map file names in its folder to their SHA-256")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}): {remedy}.") from error
    for file, digest in digests.items():
        file_path = find(file)
        if file_path is None:
            raise ModelError(f"{path.parent / file}, which {path} lists, is missing: {remedy}.")
        if get_digest(file_path) != digest:
            raise ModelError(f"{path.parent / file} is not the file that was saved (its SHA-256 differs from {path}): {remedy}.")
