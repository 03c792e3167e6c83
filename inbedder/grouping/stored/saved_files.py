"""The folder of a saved grouping: ``grouping.json`` and .npy arrays, replaced atomically.

The file name of an array contains a hash of its content. ``grouping.json`` names the files and is written last: until then
readers get the complete previous grouping, afterwards the complete new one. The arrays of the replaced grouping are then deleted;
a reader that misses one starts again. Savers hold a lock, and remove what killed ones left. Other files are never deleted.
``grouping.json`` also holds a hash of itself, which identifies the version that a reader has read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value
from inbedder.io.files import atomic_write, hash_file, is_pipe
from inbedder.io.locks import LOCK_FILE, lock_folder
from inbedder.io.temporaries import is_temporary
from inbedder.runtime.user_paths import expand_path

METADATA_FILE = "grouping.json"
FORMAT_VERSION = 1
HASH = "sha256"
"""Key of the hash of ``grouping.json`` in itself."""
ARRAY_FILE_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}\.npy")
LOCK_TIMEOUT_SECONDS = 60.0
"""Time to wait for another process that saves in the same folder."""
REPAIR_ADVICE = "Save the grouping again (inbedder cluster --save), or restore a copy of the folder."


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Check that a grouping can be saved in a folder, before the model runs.

    Args:
        folder: A new or empty folder, or one with a saved grouping, which is replaced. What a killed save left is ignored.

    Returns:
        Path of the folder.

    Raises:
        InputError: If the folder holds other files, or is not a folder.
    """
    root = expand_path(folder)
    try:
        has_other_files = root.exists() and any(not is_leftover(path) for path in root.iterdir())
    except OSError as error:
        raise InputError(f"{format_value(str(root))} cannot be used as a folder ({error.strerror}). Choose another.") from error
    if has_other_files and not (root / METADATA_FILE).is_file():
        raise InputError(f"{format_value(str(root))} holds other files but no grouping. Choose a new folder.")
    return root


def is_leftover(path: Path) -> bool:
    """Return whether a file is what a killed save can leave: its lock, a temporary, or an array, whose name contains its hash."""
    if path.name == LOCK_FILE or is_temporary(path.name):
        return True
    return bool(ARRAY_FILE_NAME.fullmatch(path.name)) and path.is_file() and hash_file(path)[:16] == path.stem[-16:]


@contextmanager
def lock_grouping(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Hold the exclusive right to save a grouping in a folder.

    Args:
        folder: A new or empty folder, or one with a saved grouping; created if it does not exist.

    Yields:
        Path of the folder.

    Raises:
        InputError: If the folder cannot be used, or another process does not finish saving there.
    """
    root = check_save_folder(folder)
    refusal = f"Another process is saving to {format_value(str(root))}. Wait for it, or choose another folder."
    with lock_folder(root, refusal, wait_seconds=LOCK_TIMEOUT_SECONDS):
        yield root


def write_grouping_files(
    folder: str | os.PathLike[str], metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], replaces: str | None = None
) -> str:
    """Write the files of a grouping atomically, one process at a time.

    Args:
        folder: A new or empty folder, or one with a saved grouping; created if it does not exist.
        metadata: Content of ``grouping.json``.
        arrays: Arrays by name.
        replaces: The only version that may be replaced; None replaces any.

    Returns:
        The new version.

    Raises:
        InputError: If the folder cannot be used, another process does not finish saving there, or the folder has another version.
    """
    with lock_grouping(folder) as root:
        return write_locked(root, metadata, arrays, replaces)


def write_locked(root: Path, metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], replaces: str | None = None) -> str:
    """Do what ``write_grouping_files`` does, within ``lock_grouping``."""
    if replaces is not None and _read_metadata(root)[HASH] != replaces:
        raise InputError(
            f"The grouping in {format_value(str(root))} was saved by another process since it was loaded. Load it again, and "
            "repeat the change."
        )
    replaced_files = _list_array_files(root)
    files: dict[str, dict[str, str]] = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        files[name] = {"file": f"{name}-{digest[:16]}.npy", "sha256": digest}
        with atomic_write(root / files[name]["file"]) as temporary:
            temporary.write_bytes(buffer.getvalue())
    content: dict[str, Any] = {"format": FORMAT_VERSION, **metadata, "arrays": files}
    content[HASH] = hash_metadata(content)
    with atomic_write(root / METADATA_FILE) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for file in replaced_files - {entry["file"] for entry in files.values()}:
        (root / file).unlink(missing_ok=True)
    return str(content[HASH])


def hash_metadata(metadata: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of the content of ``grouping.json``, without the one that it holds."""
    content = {name: value for name, value in metadata.items() if name != HASH}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _list_array_files(root: Path) -> set[str]:
    """List the arrays in a folder that a new grouping replaces: those of the saved grouping, and those of killed saves."""
    leftovers = {path.name for path in root.iterdir() if ARRAY_FILE_NAME.fullmatch(path.name) and is_leftover(path)}
    try:
        entries = _read_metadata(root)["arrays"].values()
    except InputError:  # none, or a damaged one
        return leftovers
    return leftovers | {file for entry in entries if (file := _get_array_file(entry)) is not None}


def read_grouping_files(folder: str | os.PathLike[str], names: tuple[str, ...]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read the files of a grouping; start again if another process replaces it meanwhile.

    Args:
        folder: Folder of the saved grouping.
        names: Names of the required arrays.

    Returns:
        Content of ``grouping.json``, whose ``HASH`` is its version, and the arrays.

    Raises:
        InputError: If there is no grouping, or it is damaged or has another format version.
    """
    root = expand_path(folder)
    while True:
        version = _identify_version(root)
        try:
            metadata = _read_metadata(root)
            return metadata, [_read_array(root, metadata["arrays"].get(name), name) for name in names]
        except InputError:
            if _identify_version(root) == version:
                raise


def _identify_version(root: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever ``grouping.json`` is replaced: its inode, time and size."""
    try:
        status = (root / METADATA_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_metadata(root: Path) -> dict[str, Any]:
    if is_pipe(root / METADATA_FILE):
        raise make_damage_error(root, f"{METADATA_FILE} is a pipe")
    try:
        metadata = json.loads((root / METADATA_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        advice = "Save one with result.save(folder) or inbedder cluster --save."
        if subfolders := sorted(path.parent.name for path in root.glob(f"*/{METADATA_FILE}")):
            advice = f"Its subfolders do, one per question: {', '.join(str(root / name) for name in subfolders)}."
        raise InputError(f"{format_value(str(root))} holds no grouping ({METADATA_FILE} is missing). {advice}") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise make_damage_error(root, f"{METADATA_FILE} cannot be read ({error})") from error
    if not isinstance(metadata, dict) or not isinstance(metadata.get("arrays"), dict):
        raise make_damage_error(root, f"{METADATA_FILE} does not list its arrays")
    if type(metadata.get("format")) is not int or metadata["format"] != FORMAT_VERSION:
        version = format_value(metadata.get("format"))
        advice = f"this version reads {FORMAT_VERSION}. Group again with --save."
        raise InputError(f"{format_value(str(root))} has format {version}, and {advice}")
    if metadata.get(HASH) != hash_metadata(metadata):
        raise make_damage_error(root, f"{METADATA_FILE} has another SHA-256 than it records")
    return metadata


def _get_array_file(entry: Any) -> str | None:
    """Get the file name of an array from its entry in ``grouping.json``; None if the entry is damaged."""
    file = entry.get("file") if isinstance(entry, dict) else None
    return file if isinstance(file, str) and ARRAY_FILE_NAME.fullmatch(file) else None


def _read_array(root: Path, entry: Any, name: str) -> NDArray[Any]:
    file = _get_array_file(entry)
    if file is None:
        raise make_damage_error(root, f"{METADATA_FILE} names no file for {name}")
    try:
        content = (root / file).read_bytes()
    except OSError as error:
        raise make_damage_error(root, f"{file} cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise make_damage_error(root, f"{file} is larger than the memory") from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise make_damage_error(root, f"{file} has another SHA-256 than {METADATA_FILE} records")
    try:
        return _parse_array(content)
    except Exception as error:  # numpy's parser of headers raises errors of many kinds
        raise make_damage_error(root, f"{file} is not an array ({format_value(error)})") from error


def _parse_array(content: bytes) -> NDArray[Any]:
    """Parse an npy file of version 1.0, the only one that is written, without allocating more than the file holds."""
    file = io.BytesIO(content)
    if (version := np.lib.format.read_magic(file)) != (1, 0):
        raise ValueError(f"npy version {version}")
    shape, is_transposed, dtype = np.lib.format.read_array_header_1_0(file)
    data = memoryview(content)[file.tell() :]
    if dtype.kind not in "fiu" or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{dtype} of shape {shape} in {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_transposed else "C").copy()


def make_damage_error(folder: str | os.PathLike[str], reason: str) -> InputError:
    """Make the error for a damaged grouping."""
    return InputError(f"The grouping in {format_value(str(folder))} is damaged: {reason}. {REPAIR_ADVICE}")
