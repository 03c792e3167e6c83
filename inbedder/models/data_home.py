"""The folder of models that are not part of the package."""

from __future__ import annotations

import os
from pathlib import Path


def get_home_folder() -> Path:
    """Return the folder of installed and converted models: the environment variable INBEDDER_HOME, else ~/.cache/inbedder."""
    return Path(os.environ.get("INBEDDER_HOME") or "~/.cache/inbedder").expanduser()
