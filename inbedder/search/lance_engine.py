"""LanceDB: a lazy import, a lock for one writer at a time, and its errors as InputError."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, MissingExtraError, format_value

LOCK_FILE = "writer.lock"
DISK_FULL_CODES = tuple(f"os error {number}" for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
"""Parts of the engine's messages that mean a full disk."""


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
    """Connect to the database in a folder; its tables show what other processes commit."""
    return import_lancedb().connect(str(path), read_consistency_interval=timedelta(0))


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the right to write to an index.

    Args:
        folder: The index; the folder is created if needed.

    Yields:
        Nothing.

    Raises:
        InputError: When another process holds the lock, or the folder cannot be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{format_value(str(folder))} is a file. Choose a new folder for the index.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("a")
    except OSError as error:
        raise InputError(f"Cannot write to {format_value(str(folder))}: {error.strerror}.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: writers are not kept apart
            pass
        except OSError as error:
            message = f"Another process is writing to {format_value(str(folder))}. Wait until it is done; searches still work."
            raise InputError(message) from error
        yield


@contextmanager
def translate_engine_errors(folder: Path) -> Iterator[None]:
    """Raise the engine's errors as InputError.

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
        if any(code in message for code in DISK_FULL_CODES):
            advice = "Every committed row is kept; free some space and try again."
            raise InputError(f"The disk of {format_value(str(folder))} is full. {advice}") from error
        raise InputError(f"{format_value(str(folder))}: {message[:500]}. Check it with: inbedder index verify") from error
