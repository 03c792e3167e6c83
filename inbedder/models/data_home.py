"""Where models that are not part of the package are kept."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path:
    """The folder of installed and converted models: the environment variable INBEDDER_HOME, else ~/.cache/inbedder."""
    return Path(os.environ.get("INBEDDER_HOME") or "~/.cache/inbedder").expanduser()
