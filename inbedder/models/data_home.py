"""The folder of models that are not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from inbedder.runtime.user_paths import expand_path


def get_home_folder() -> Path:
    """Return the folder of installed and converted models: the environment variable INBEDDER_HOME, else ~/.cache/inbedder."""
    return expand_path(os.environ.get("INBEDDER_HOME") or "~/.cache/inbedder")
