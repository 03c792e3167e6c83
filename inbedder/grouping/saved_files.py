"""The folder of a saved grouping: ``grouping.json`` and arrays (.npy), replaced atomically.

The name of an array's file contains a hash of its content, and ``grouping.json``, which names the files, is written last: until
then a reader gets the whole previous grouping, afterwards the whole new one. Files of earlier groupings are deleted after that.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, shown
from inbedder.io.files import atomic_write

METADATA_FILE = "grouping.json"
FORMAT_VERSION = 1
ARRAY_FILE_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}\.npy")
REPAIR_ADVICE = "Keep the grouping again (inbedder cluster --save), or take a copy of the folder."


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Check, before the work, that a grouping can be saved in a folder.

    Args:
        folder: New, empty, or one that holds a grouping already, which is replaced.

    Returns:
        The folder.

    Raises:
        InputError: When it holds something else, or is none.
    """
    root = Path(folder)
    try:
        has_files = root.exists() and any(root.iterdir())
    except OSError as error:
        raise InputError(f"{shown(str(root))} is no folder that can be used ({error.strerror}). Name another.") from error
    if has_files and not (root / METADATA_FILE).is_file():
        raise InputError(f"{shown(str(root))} holds other files and no grouping. Name a new folder.")
    return root


def write_grouping_files(folder: str | os.PathLike[str], metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a grouping, all of it or nothing.

    Args:
        folder: As for ``check_save_folder``; created if it does not exist.
        metadata: Content of ``grouping.json``.
        arrays: Arrays by name.

    Raises:
        InputError: When the folder cannot be used.
    """
    root = check_save_folder(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{shown(str(root))} cannot be made ({error.strerror}). Name another folder.") from error
    files: dict[str, dict[str, str]] = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        files[name] = {"file": f"{name}-{digest[:16]}.npy", "sha256": digest}
        with atomic_write(root / files[name]["file"]) as temporary:
            temporary.write_bytes(buffer.getvalue())
    with atomic_write(root / METADATA_FILE) as temporary:
        temporary.write_text(
            json.dumps({"format": FORMAT_VERSION, **metadata, "arrays": files}, indent=1) + "\n", encoding="utf-8"
        )
    current_files = {entry["file"] for entry in files.values()}
    for path in root.glob("*.npy"):
        if ARRAY_FILE_NAME.fullmatch(path.name) and path.name not in current_files:
            path.unlink(missing_ok=True)


def read_grouping_files(folder: str | os.PathLike[str], names: tuple[str, ...]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read a grouping.

    Args:
        folder: Where it was saved.
        names: Arrays that it must contain.

    Returns:
        Content of ``grouping.json``, and the arrays.

    Raises:
        InputError: When there is none, or it is damaged or of another version.
    """
    root = Path(folder)
    try:
        metadata = json.loads((root / METADATA_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        advice = "Keep one with result.save(folder), or inbedder cluster --save."
        raise InputError(f"{shown(str(root))} holds no grouping ({METADATA_FILE} is not there). {advice}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise make_damage_error(root, f"{METADATA_FILE} cannot be read ({error})") from error
    if not isinstance(metadata, dict) or not isinstance(metadata.get("arrays"), dict):
        raise make_damage_error(root, f"{METADATA_FILE} does not list its arrays")
    if metadata.get("format") != FORMAT_VERSION:
        version = shown(metadata.get("format"))
        advice = f"this version reads {FORMAT_VERSION}. Group again with --save."
        raise InputError(f"{shown(str(root))} has format {version}, and {advice}")
    return metadata, [_read_array(root, metadata["arrays"].get(name), name) for name in names]


def _read_array(root: Path, entry: Any, name: str) -> NDArray[Any]:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY_FILE_NAME.fullmatch(file):
        raise make_damage_error(root, f"{METADATA_FILE} names no file of {name}")
    try:
        content = (root / file).read_bytes()
    except OSError as error:
        raise make_damage_error(root, f"{file} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise make_damage_error(root, f"{file} is not what was written")
    try:
        array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise make_damage_error(root, f"{file} is no array ({error})") from error
    return array


def make_damage_error(folder: Path, reason: str) -> InputError:
    """Make the error for a grouping in a folder that cannot be used for a reason."""
    return InputError(f"The grouping in {shown(str(folder))} is damaged: {reason}. {REPAIR_ADVICE}")
