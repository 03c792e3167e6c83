"""Data folders, which a wheel installs inside a package and a checkout keeps next to it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def find_data_folder(package: str, name: str) -> Path:
    """Find a data folder: inside the installed package, or next to it in a checkout.

    Args:
        package: The import name of a package, such as ``inbedder``.
        name: The folder's name, such as ``prompts``.

    Returns:
        Path of the folder.

    Example:
        >>> from inbedder.runtime.package_data import find_data_folder
        >>> find_data_folder("inbedder", "prompts").joinpath("templates.yaml").is_file()
        True
    """
    folder = Path(str(files(package)))
    return folder / name if (folder / name).is_dir() else folder.parent / name
