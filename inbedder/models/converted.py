"""Folders with weights that were converted from another format, written whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from inbedder.errors import ModelError
from inbedder.io.files import hash_file, read_umask
from inbedder.io.temporaries import hold_temporary
from inbedder.models.checksums import get_digest

MANIFEST = "converted.json"
"""The file in a converted folder that names its source and the SHA-256 of its files. It is written last."""


def write_converted(file: Path, folder: Path, write: Callable[[Path, Path], None]) -> None:
    """Convert a file by ``write(file, folder)`` into a folder, which appears, and replaces an older one, when it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with hold_temporary(folder, is_folder=True) as partial:
            write(file, partial)
            paths = sorted(path for path in partial.rglob("*") if path.is_file())
            digests = {path.relative_to(partial).as_posix(): hash_file(path) for path in paths}
            manifest = {"file": file.name, "sha256": hash_file(file), "written": digests}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in (partial, *partial.rglob("*")):
                path.chmod((0o777 if path.is_dir() else 0o666) & ~read_umask())
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    except OSError as error:
        if (folder / MANIFEST).is_file():
            return  # another process converted it first
        advice = "Set INBEDDER_HOME to a writable folder with free space."
        raise ModelError(f"Cannot convert {file} into {folder}: {error.strerror or error}. {advice}") from error


def check_converted(folder: Path) -> None:
    """Reject a folder that ``write_converted`` wrote if one of its files is missing or changed."""
    try:
        digests = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["written"]
        changed_names = [name for name, digest in digests.items() if get_digest(folder / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{folder} is damaged ({error}). Remove the folder to convert the file again.") from error
    if changed_names:
        raise ModelError(
            f"{', '.join(changed_names)} in {folder} changed after the conversion. Remove the folder to convert the file again."
        )
