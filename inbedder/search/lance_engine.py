"""LanceDB: imported when it is needed, one writer at a time, its errors in the package's words."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, MissingExtraError, shown

LOCK = "writer.lock"
FULL = tuple(f"os error {number}" for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
"""How the engine's messages tell of a full disk."""


def import_lancedb() -> Any:
    """Import LanceDB, or raise MissingExtraError."""
    try:
        import lancedb
        import lancedb.index
        import lancedb.rerankers
    except ImportError as error:
        raise MissingExtraError("lancedb", "search") from error
    return lancedb


def connect(path: Path) -> Any:
    """The database in a folder; its tables show what other processes commit."""
    return import_lancedb().connect(str(path), read_consistency_interval=timedelta(0))


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the right to write to an index.

    Args:
        folder: The index; it is made when it is not there.

    Yields:
        Nothing.

    Raises:
        InputError: When somebody else holds it, or the folder cannot be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{shown(str(folder))} is a file. Give a new folder for the index.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a")
    except OSError as error:
        raise InputError(f"Cannot write to {shown(str(folder))}: {error.strerror}.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not on this system: nobody is kept out
            pass
        except OSError as error:
            message = f"Another process is writing to {shown(str(folder))}. Wait until it is done; searching goes on."
            raise InputError(message) from error
        yield


@contextmanager
def engine_errors(folder: Path) -> Iterator[None]:
    """Say in the package's words what the engine could not do.

    Args:
        folder: The index.

    Yields:
        Nothing.

    Raises:
        InputError: When the disk is full, or files cannot be read or written.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        message = str(error)
        if any(sign in message for sign in FULL):
            raise InputError(
                f"The disk of {shown(str(folder))} is full. Every row that was committed is kept; make room and run it again."
            ) from error
        raise InputError(f"{shown(str(folder))}: {message[:500]}. Check it with: inbedder index verify") from error
