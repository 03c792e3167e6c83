"""LanceDB: a lazy import, a lock for one writer at a time, and its errors as InputError."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from inbedder.errors import InbedderError, InputError, format_value, import_extra
from inbedder.io.locks import lock_folder

DISK_FULL_CODES = tuple(f"os error {number}" for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
"""Parts of the engine's messages that mean a full disk."""


def import_lancedb() -> Any:
    """Import LanceDB, or raise MissingExtraError. Its own log, which it prints, holds only errors unless LANCEDB_LOG is set."""
    os.environ.setdefault("LANCEDB_LOG", "error")
    for module in ("lancedb.index", "lancedb.rerankers"):
        import_extra(module, "search")
    return import_extra("lancedb", "search")


def connect(path: Path) -> Any:
    """Connect to the database in a folder; its tables show what other processes commit."""
    return import_lancedb().connect(str(path), read_consistency_interval=timedelta(0))


def lock(folder: Path) -> AbstractContextManager[None]:
    """Return a context that holds the right to write to an index; the folder is created if needed."""
    return lock_folder(folder, f"Another process is writing to {format_value(str(folder))}. Wait for it; searches still work.")


def is_engine_error(error: Exception) -> bool:
    """Return whether LanceDB may have raised this error."""
    return isinstance(error, OSError | RuntimeError | ValueError) or type(error).__name__ == "RustPanic"


def clean_engine_message(error: Exception) -> str:
    """Return the message of an engine's error in one line, without the places in its source code."""
    return " ".join(re.sub(r",? /\S+\.rs:\d+(:\d+)?", "", str(error)).split())[:500]


@contextmanager
def translate_engine_errors(folder: Path) -> Iterator[None]:
    """Raise the engine's errors as InputError.

    Args:
        folder: The index.

    Yields:
        Nothing.

    Raises:
        InputError: If the disk is full, or files cannot be read or written.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, InbedderError) or not is_engine_error(error):
            raise
        message = clean_engine_message(error)
        if any(code in message for code in DISK_FULL_CODES):
            advice = "Every committed row is kept; free some space and try again."
            raise InputError(f"The disk of {format_value(str(folder))} is full. {advice}") from error
        raise InputError(f"{format_value(str(folder))}: {message}. Check it with: inbedder index verify") from error
