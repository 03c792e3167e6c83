"""Temporary files and folders next to their targets.

A temporary is named by one pattern and locked until its writer has renamed or removed it. The system releases the lock when the
writer dies, so a temporary that can be locked is left over from a killed process; the next write next to it removes it. Where the
system or the file system has no locks, nothing is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inbedder.io.locks import HAS_LOCKS, is_open_at, try_lock

NAME_CHARACTERS = 32
"""Maximum number of characters of the target's name in the temporary's name."""
SUFFIX_CHARACTERS = 16
"""Maximum length of the suffix that a temporary shares with its target, because writers recognize a format by it."""
_NAME_PATTERN = re.compile(rf"\..{{0,{NAME_CHARACTERS}}}-inbedder-[a-z0-9_]{{8}}(\.[^.]*)?", re.DOTALL)


def is_temporary(name: str) -> bool:
    """Return whether a name in a folder is the name of a temporary."""
    return _NAME_PATTERN.fullmatch(name) is not None


@contextmanager
def hold_temporary(target: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Create a temporary next to its target and lock it until the block ends; remove those of killed processes first.

    Args:
        target: The file or folder that the temporary will replace.
        is_folder: Whether to create a folder instead of a file.

    Yields:
        The temporary. If the block does not rename it, it is removed, also on Ctrl-C.

    Raises:
        OSError: If the temporary cannot be created.
    """
    remove_leftovers(target.parent)
    path, descriptor = _create(target, is_folder)
    try:
        yield path
    finally:
        with suppress(OSError):
            _remove(path)
        if descriptor is not None:
            os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporaries in a folder whose writers are dead. Leave all other files, and ignore errors."""
    if not HAS_LOCKS:
        return
    with suppress(OSError):
        for name in filter(is_temporary, os.listdir(folder)):
            with suppress(OSError):
                _remove_if_unlocked(folder / name)


def _create(target: Path, is_folder: bool) -> tuple[Path, int | None]:
    """Create a temporary; return its path, and the descriptor that holds its lock."""
    prefix = f".{target.name[:NAME_CHARACTERS]}-inbedder-"
    suffix = target.suffix if len(target.suffix) <= SUFFIX_CHARACTERS else ""
    while True:
        if is_folder:
            path = Path(tempfile.mkdtemp(suffix, prefix, target.parent))
        else:
            descriptor, name = tempfile.mkstemp(suffix, prefix, target.parent)
            os.close(descriptor)
            path = Path(name)
        if not HAS_LOCKS:  # Windows, where an open file cannot be renamed
            return path, None
        with suppress(FileNotFoundError):  # another process swept it before it was locked
            descriptor = _open_to_lock(path)
            with suppress(OSError):  # on file systems without locks, no process removes it
                try_lock(descriptor)
            if is_open_at(descriptor, path):
                return path, descriptor
            os.close(descriptor)


def _open_to_lock(path: Path) -> int:
    """Open a temporary; for writing if possible, which some network file systems require for a lock."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (IsADirectoryError, PermissionError):
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def _remove_if_unlocked(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    descriptor = _open_to_lock(path)
    try:
        if try_lock(descriptor) and is_open_at(descriptor, path):
            _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
