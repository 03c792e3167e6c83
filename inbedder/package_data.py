"""Folders of data that a wheel installs inside a package and a checkout keeps beside it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def find_data_folder(package: str, name: str) -> Path:
    """Find a folder of data: inside the installed package, or beside it in a checkout.

    Args:
        package: The import name of a package, such as ``inbedder``.
        name: The folder's name, such as ``prompts``.

    Returns:
        The folder. In a checkout it stands beside the package's own folder.

    Example:
        >>> find_data_folder("inbedder", "prompts").joinpath("templates.yaml").is_file()
        True
    """
    folder = Path(str(files(package)))
    return folder / name if (folder / name).is_dir() else folder.parent / name
