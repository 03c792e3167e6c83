"""What a model's files were when they were saved: SHA-256 in ``checksums.json`` beside them, checked when they are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from inbedder.errors import ModelError
from inbedder.io.files import atomic_write, is_inside, sha256_of

CHECKSUMS = "checksums.json"
_LISTED = ("*.safetensors", "*config*.json", "tokenizer.json", "modules.json", "inbedder.json", "conditional.json")
"""The files that decide what a model computes."""

State = tuple[str, int, int, int]
"""Path, inode, size and time of change of a file."""


def state_of(path: Path) -> State:
    """Return what changes when a file is written again: its path, inode, size and time of change."""
    stat = path.stat()
    return str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=1024)
def _digest(state: State) -> str:
    return sha256_of(Path(state[0]))


def digest_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, computed again only when the file changed."""
    return _digest(state_of(path))


def write_checksums(folder: Path) -> None:
    """Write ``checksums.json`` for the model in a folder and in the folders of its modules; checkpoints are left out.

    Args:
        folder: Where the model was saved.
    """
    found = (path for place in (folder, *folder.iterdir()) for kind in _LISTED for path in place.glob(kind))
    files = sorted({path for path in found if path.is_file() and not path.parent.name.startswith("checkpoint-")})
    with atomic_write(folder / CHECKSUMS) as temporary:
        digests = {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}
        temporary.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def check_checksums(find: Callable[[str], Path | None], *, required: bool = False) -> None:
    """Refuse a model whose files are not those that were saved.

    Args:
        find: From a file's name to where it is; None where there is none.
        required: Whether a model without checksums is refused too.

    Raises:
        ModelError: When a file is missing or differs.
    """
    path = find(CHECKSUMS)
    if path is None:
        if required:
            raise ModelError(f"The model brings no {CHECKSUMS}. Install inbedder again: pip install --force-reinstall inbedder")
        return
    cure = "install inbedder again" if required else f"train or download the model again, or remove {path} if you changed it"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(listed, dict) or not all(
            isinstance(digest, str) and is_inside(file) for file, digest in listed.items()
        ):
            raise ValueError("it must hold the SHA-256 of files beside it")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}): {cure}.") from error
    for file, digest in listed.items():
        found = find(file)
        if found is None:
            raise ModelError(f"{path.parent / file} is missing, which {path} names: {cure}.")
        if digest_of(found) != digest:
            raise ModelError(f"{path.parent / file} is not the file that was saved (its SHA-256 differs from {path}): {cure}.")
