"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inbedder.errors import InputError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary file beside the target and rename it at the end.

    Args:
        path: The target; an existing file is replaced only when everything was written.

    Yields:
        The temporary file. It is removed when the block raises, Ctrl-C included.

    Raises:
        InputError: When the folder does not exist, cannot be written to, or the disk is full.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
    except OSError as error:
        raise _cannot_write(target, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~umask())
        os.replace(temporary, target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _cannot_write(target: Path, error: OSError) -> InputError:
    return InputError(f"Cannot write {target}: {error.strerror or error}. Choose another -o, or make room there.")


def umask() -> int:
    """What this process takes away from the rights of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def is_inside(path: str) -> bool:
    """Whether a path that a file names stays in the folder of that file.

    Args:
        path: Relative, with slashes.

    Returns:
        False for an absolute path and for one that goes up.
    """
    return not re.match(r"[/\\]|[A-Za-z]:", path) and ".." not in re.split(r"[/\\]", path)
