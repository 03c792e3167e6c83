"""Atomic file writes, and checks of output files before a run."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inbedder.errors import InputError, format_value
from inbedder.io.temporaries import hold_temporary
from inbedder.runtime.user_paths import expand_path

FILE_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
"""Kinds of outputs that are not regular files; all others are sockets."""
_UMASK_AT_IMPORT = os.umask(0o077)
os.umask(_UMASK_AT_IMPORT)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary file next to the target, and rename it once it is on disk.

    Args:
        path: The target. An existing file is replaced only after everything is written, and its mode is kept. A symbolic link
            is kept, and the file that it points to is written.

    Yields:
        The temporary file. It is removed when the block raises, also on Ctrl-C.

    Raises:
        InputError: If the target is not a regular file, the folder does not exist or is not writable, or the disk is full.
    """
    target, mode = _resolve_target(path)
    with _report_write_errors(path), hold_temporary(target) as temporary:
        yield temporary
        with temporary.open("rb+") as file:
            temporary.chmod(0o666 & ~read_umask() if mode is None else mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary folder next to the target, and rename it at the end.

    Args:
        path: The target, which does not exist or is empty.

    Yields:
        The temporary folder. It is removed when the block raises, also on Ctrl-C, and the target is unchanged.

    Raises:
        InputError: If the folder cannot be created, or the disk is full.
    """
    target = Path(os.path.realpath(expand_path(path)))
    with _report_write_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with hold_temporary(target, is_folder=True) as temporary:
            yield temporary
            temporary.chmod(0o777 & ~read_umask())
            if target.is_dir():
                target.rmdir()
            os.replace(temporary, target)
            _sync_folder(target.parent)


def check_target(path: str | os.PathLike[str], sources: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Check that an output can be written and is not an input, before a run; leave no file behind."""
    target, _ = _resolve_target(path)
    if any(is_same_file(source, target) for source in sources):
        raise InputError(f"{format_value(str(path))} is the input itself, which would be overwritten. Choose another -o.")
    with _report_write_errors(path):
        tempfile.TemporaryFile(dir=target.parent).close()


def is_same_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Return whether a source ("-" is standard input) and a path, which may not exist, are the same file under any name."""
    try:
        status = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(expand_path(source))
        return os.path.samestat(status, os.stat(expand_path(path)))
    except (OSError, ValueError):  # one of them does not exist, or standard input is not a file
        return False


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a named pipe, which can be read once only."""
    with suppress(OSError, ValueError):  # it does not exist, or is no path
        return stat.S_ISFIFO(os.stat(expand_path(path)).st_mode)
    return False


def _resolve_target(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """Return the file that a path leads to through symbolic links, and its mode; None if it does not exist."""
    target = Path(os.path.realpath(expand_path(path)))
    with _report_write_errors(path):
        try:
            mode = target.stat().st_mode
        except FileNotFoundError:
            return target, None
    if not stat.S_ISREG(mode):
        kind = FILE_KINDS.get(stat.S_IFMT(mode), "a socket")
        raise InputError(f"{format_value(str(path))} is {kind}, not a regular file that can be replaced. Choose another -o.")
    return target, stat.S_IMODE(mode)


def _sync_folder(folder: Path) -> None:
    """Write a new name in a folder to the disk, if the system supports it."""
    if os.name != "posix":
        return
    with suppress(OSError):  # not supported by the file system, or the folder is not readable
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _report_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise the system's errors as InputError."""
    try:
        yield
    except OSError as error:
        message = f"Cannot write {format_value(str(path))}: {error.strerror or error}. Choose another -o, or free space there."
        raise InputError(message) from error


def read_umask() -> int:
    """Read this process's umask: from /proc on Linux, and elsewhere as it was at import, because reading it means setting it."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        if line := re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE):
            return int(line[1], 8)
    return _UMASK_AT_IMPORT


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def is_inside(path: str) -> bool:
    """Return whether a relative path, with slashes, stays inside its folder: it is not absolute and has no ".."."""
    return not re.match(r"[/\\]|[A-Za-z]:", path) and ".." not in re.split(r"[/\\]", path)
