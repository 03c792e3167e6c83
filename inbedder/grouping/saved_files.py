"""The folder of a saved grouping: ``grouping.json`` and .npy arrays, replaced atomically.

The file name of an array contains a hash of its content. ``grouping.json`` names the files and is written last: until then
readers get the complete previous grouping, afterwards the complete new one. Files of earlier groupings are deleted at the end.
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

from inbedder.errors import InputError, format_value
from inbedder.io.files import atomic_write

METADATA_FILE = "grouping.json"
FORMAT_VERSION = 1
ARRAY_FILE_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}\.npy")
REPAIR_ADVICE = "Save the grouping again (inbedder cluster --save), or restore a copy of the folder."


def check_save_folder(folder: str | os.PathLike[str]) -> Path:
    """Check that a grouping can be saved in a folder, before the model runs.

    Args:
        folder: A new or empty folder, or one with a saved grouping, which is replaced.

    Returns:
        Path of the folder.

    Raises:
        InputError: If the folder holds other files, or is not a folder.
    """
    root = Path(folder)
    try:
        has_files = root.exists() and any(root.iterdir())
    except OSError as error:
        raise InputError(f"{format_value(str(root))} cannot be used as a folder ({error.strerror}). Choose another.") from error
    if has_files and not (root / METADATA_FILE).is_file():
        raise InputError(f"{format_value(str(root))} holds other files but no grouping. Choose a new folder.")
    return root


def write_grouping_files(folder: str | os.PathLike[str], metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the files of a grouping atomically.

    Args:
        folder: A new or empty folder, or one with a saved grouping; created if it does not exist.
        metadata: Content of ``grouping.json``.
        arrays: Arrays by name.

    Raises:
        InputError: If the folder cannot be used.
    """
    root = check_save_folder(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{format_value(str(root))} cannot be created ({error.strerror}). Choose another folder.") from error
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
    """Read the files of a grouping.

    Args:
        folder: Folder of the saved grouping.
        names: Names of the required arrays.

    Returns:
        Content of ``grouping.json``, and the arrays.

    Raises:
        InputError: If there is no grouping, or it is damaged or has another format version.
    """
    root = Path(folder)
    try:
        metadata = json.loads((root / METADATA_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        advice = "Save one with result.save(folder) or inbedder cluster --save."
        raise InputError(f"{format_value(str(root))} holds no grouping ({METADATA_FILE} is missing). {advice}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise make_damage_error(root, f"{METADATA_FILE} cannot be read ({error})") from error
    if not isinstance(metadata, dict) or not isinstance(metadata.get("arrays"), dict):
        raise make_damage_error(root, f"{METADATA_FILE} does not list its arrays")
    if metadata.get("format") != FORMAT_VERSION:
        version = format_value(metadata.get("format"))
        advice = f"this version reads {FORMAT_VERSION}. Group again with --save."
        raise InputError(f"{format_value(str(root))} has format {version}, and {advice}")
    return metadata, [_read_array(root, metadata["arrays"].get(name), name) for name in names]


def _read_array(root: Path, entry: Any, name: str) -> NDArray[Any]:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY_FILE_NAME.fullmatch(file):
        raise make_damage_error(root, f"{METADATA_FILE} names no file for {name}")
    try:
        content = (root / file).read_bytes()
    except OSError as error:
        raise make_damage_error(root, f"{file} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise make_damage_error(root, f"{file} has another SHA-256 than {METADATA_FILE} records")
    try:
        array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise make_damage_error(root, f"{file} is not an array ({error})") from error
    return array


def make_damage_error(folder: Path, reason: str) -> InputError:
    """Make the error for a damaged grouping."""
    return InputError(f"The grouping in {format_value(str(folder))} is damaged: {reason}. {REPAIR_ADVICE}")
