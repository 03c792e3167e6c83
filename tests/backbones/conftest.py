import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.backbones.checkpoints import COMMIT


@pytest.fixture
def fill_cache(tmp_path, monkeypatch):
    """Return a function that puts a folder into a hub cache as main of ``someone/model``."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--model"

    def fill(folder):
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        return Path(shutil.copytree(folder, repository / "snapshots" / COMMIT))

    return fill
