"""The folder of a kept grouping: ``grouping.json`` and arrays (.npy), written so that nobody ever sees half of it.

The name of an array's file holds a hash of its content, and ``grouping.json``, which names the files, is written last: until then
a reader finds the grouping that was there before, and then the whole new one. Files of earlier groupings go after that.
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
from inbedder.files import atomic_write

FILE = "grouping.json"
FORMAT = 1
ARRAY = re.compile(r"[a-z]+-[0-9a-f]{16}\.npy")
AGAIN = "Keep the grouping again (inbedder cluster --save), or take a copy of the folder."


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Find out before the work whether a grouping can be kept in a folder.

    Args:
        folder: New, empty, or one that holds a grouping already, which is replaced.

    Returns:
        The folder.

    Raises:
        InputError: When it holds something else, or is none.
    """
    place = Path(folder)
    try:
        used = place.exists() and any(place.iterdir())
    except OSError as error:
        raise InputError(f"{shown(str(place))} is no folder that can be used ({error.strerror}). Name another.") from error
    if used and not (place / FILE).is_file():
        raise InputError(f"{shown(str(place))} holds other files and no grouping. Name a new folder.")
    return place


def write_kept(folder: str | os.PathLike[str], about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a grouping, all of it or nothing.

    Args:
        folder: As for ``check_folder``; it is made where it does not exist.
        about: What json holds.
        arrays: Arrays by name.

    Raises:
        InputError: When the folder cannot be used.
    """
    place = check_folder(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{shown(str(place))} cannot be made ({error.strerror}). Name another folder.") from error
    files: dict[str, dict[str, str]] = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        files[name] = {"file": f"{name}-{digest[:16]}.npy", "sha256": digest}
        with atomic_write(place / files[name]["file"]) as temporary:
            temporary.write_bytes(buffer.getvalue())
    with atomic_write(place / FILE) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, **about, "arrays": files}, indent=1) + "\n", encoding="utf-8")
    kept = {entry["file"] for entry in files.values()}
    for path in place.glob("*.npy"):
        if ARRAY.fullmatch(path.name) and path.name not in kept:
            path.unlink(missing_ok=True)


def read_kept(folder: str | os.PathLike[str], names: tuple[str, ...]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read a grouping.

    Args:
        folder: Where it was kept.
        names: Arrays that it must hold.

    Returns:
        What json holds, and the arrays.

    Raises:
        InputError: When there is none, or it is damaged or of another version.
    """
    place = Path(folder)
    try:
        about = json.loads((place / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        advice = "Keep one with result.save(folder), or inbedder cluster --save."
        raise InputError(f"{shown(str(place))} holds no grouping ({FILE} is not there). {advice}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(place, f"{FILE} cannot be read ({error})") from error
    if not isinstance(about, dict) or not isinstance(about.get("arrays"), dict):
        raise damaged(place, f"{FILE} does not list its arrays")
    if about.get("format") != FORMAT:
        found = shown(about.get("format"))
        raise InputError(f"{shown(str(place))} has format {found}, and this version reads {FORMAT}. Group again with --save.")
    return about, [_array(place, about["arrays"].get(name), name) for name in names]


def _array(place: Path, entry: Any, name: str) -> NDArray[Any]:
    file = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(file, str) or not ARRAY.fullmatch(file):
        raise damaged(place, f"{FILE} names no file of {name}")
    try:
        content = (place / file).read_bytes()
    except OSError as error:
        raise damaged(place, f"{file} cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise damaged(place, f"{file} is not what was written")
    try:
        array: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise damaged(place, f"{file} is no array ({error})") from error
    return array


def damaged(folder: Path, reason: str) -> InputError:
    """The error of a grouping that cannot be used.

    Args:
        folder: Where it is.
        reason: What is wrong with it.

    Returns:
        The error.
    """
    return InputError(f"The grouping in {shown(str(folder))} is damaged: {reason}. {AGAIN}")
