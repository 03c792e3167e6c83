"""Locks that the system releases when their process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from inbedder.errors import InputError, format_value

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
"""Whether an open file or folder can be locked (``flock``), which ``try_lock`` does."""
LOCK_FILE = ".lock"
"""Name of the lock file in a folder; it is removed when the lock is released."""
POLL_INTERVAL_SECONDS = 0.02


@contextmanager
def lock_folder(folder: Path, refusal: str, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the exclusive right to write to a folder, created if needed, or raise InputError with the message ``refusal``."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{format_value(str(folder))} is a file. Choose a new folder.")
    lock = FileLock(folder / LOCK_FILE, wait_seconds, 0o666, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=POLL_INTERVAL_SECONDS)
    except Timeout as error:
        raise InputError(refusal) from error
    except OSError as error:
        raise InputError(f"Cannot write to {format_value(str(folder))}: {error.strerror}. Choose another folder.") from error
    try:
        yield
    finally:
        if HAS_LOCKS:  # while it is locked; on Windows other processes have it open
            (folder / LOCK_FILE).unlink(missing_ok=True)
        lock.release()


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; return False if another process holds it. Raise OSError without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_open_at(descriptor: int, path: Path) -> bool:
    """Return whether a descriptor is of the file or folder that is now at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
