"""Writing files so that nobody ever sees half of one, and what is asked of a file before the work that fills it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inbedder.errors import InputError, format_value

FILE_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
"""What an output may be that is no regular file; the rest are sockets."""
_UMASK_AT_IMPORT = os.umask(0o077)
os.umask(_UMASK_AT_IMPORT)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary file beside the target and rename it at the end, when it is on the disk.

    Args:
        path: The target; an existing file is replaced only when everything was written, and keeps its mode. A link stays: the
            file that it leads to is written.

    Yields:
        The temporary file. It is removed when the block raises, Ctrl-C included.

    Raises:
        InputError: When the target is there and is no regular file, the folder does not exist or cannot be written to, or the
            disk is full.
    """
    target, mode = _resolve_target(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:32]}.", suffix=target.suffix)
    except OSError as error:
        raise _make_write_error(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            temporary.chmod(0o666 & ~read_umask() if mode is None else mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _make_write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary folder beside the target and rename it at the end.

    Args:
        path: The target, which is not there yet or is empty.

    Yields:
        The temporary folder. It is removed when the block raises, Ctrl-C included, and the target is as it was.

    Raises:
        InputError: When the folder cannot be made, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:32]}."))
    except OSError as error:
        raise _make_write_error(path, error) from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~read_umask())
        if target.is_dir():
            target.rmdir()
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _make_write_error(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(path: str | os.PathLike[str], sources: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Find out before the work whether a file can be written after it. Nothing is left behind.

    Args:
        path: The target.
        sources: What is read: files, or "-" for standard input.

    Raises:
        InputError: When the target is one of the sources, is there and is no regular file, or its folder cannot be written to.
    """
    target, _ = _resolve_target(path)
    if any(is_same_file(source, target) for source in sources):
        raise InputError(f"{format_value(str(path))} is the input itself, which would be lost. Choose another -o.")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise _make_write_error(path, error) from error


def is_same_file(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Whether a source ("-" is standard input) and a path, which need not exist, are the same file under any name."""
    try:
        status = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source)
        return os.path.samestat(status, os.stat(path))
    except (OSError, ValueError):  # one of them is not there, or standard input is no file
        return False


def _resolve_target(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """The file that a path leads to through links, and its mode; None where there is none yet."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target, None
    except OSError as error:
        raise _make_write_error(path, error) from error
    if not stat.S_ISREG(mode):
        kind = FILE_KINDS.get(stat.S_IFMT(mode), "a socket")
        raise InputError(f"{format_value(str(path))} is {kind}, not a regular file that can be replaced. Choose another -o.")
    return target, stat.S_IMODE(mode)


def _sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to the disk, where the system has a way."""
    if os.name != "posix":
        return
    with suppress(OSError):  # some file systems cannot, and the folder may not be readable
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_write_error(path: str | os.PathLike[str], error: OSError) -> InputError:
    return InputError(
        f"Cannot write {format_value(str(path))}: {error.strerror or error}. Choose another -o, or make room there."
    )


def read_umask() -> int:
    """Read this process's umask. Linux lists it; elsewhere it can only be read by setting it, which is done once, at import."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        if line := re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE):
            return int(line[1], 8)
    return _UMASK_AT_IMPORT


def hash_file(path: Path) -> str:
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
