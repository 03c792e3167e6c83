"""Paths as users write them. Every path that a user gives is expanded here, at the boundary where it enters."""

from __future__ import annotations

import os
from pathlib import Path


def expand_path(path: str | os.PathLike[str]) -> Path:
    """Expand ``~`` and ``~user`` at the start of a path.

    Args:
        path: A path from a user. A ``~name`` without a user of that name stays as it is.

    Returns:
        The path.

    Example:
        >>> from inbedder.runtime.user_paths import expand_path
        >>> expand_path("~/reviews.csv") == Path.home() / "reviews.csv"
        True
    """
    return Path(expand_name(path))


def expand_name(name: str | os.PathLike[str]) -> str:
    """Expand ``~`` at the start of a name that may be a path, such as a model's; a hub id stays as it is."""
    try:
        return os.path.expanduser(os.fspath(name))
    except ValueError:  # a null character, which the system rejects with a better message
        return os.fspath(name)
