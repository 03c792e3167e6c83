"""The wheel holds what it needs: installed into an empty environment it embeds with a tiny model."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_embeds_from_an_empty_environment(tmp_path, make_model):
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".git", ".venv", "tests", "runs", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, source, ignore=ignored)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    wheel = next(tmp_path.glob("*.whl"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    # The dependencies are lent from this environment: downloading them again would show nothing about the wheel.
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (tmp_path / "texts.txt").write_text("I love cats\nI love dogs\n")
    command = [tmp_path / "env" / "bin" / "inbedder", "embed", "texts.txt", "-i", "@topic", "--model", make_model("opt")]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert np.load(tmp_path / "vectors.npy", allow_pickle=False).shape == (2, 32)
    for package in ("inbedder", "finetune", "evaluation"):
        subprocess.run(
            [python, "-c", f"import {package}; assert {package}.__file__.startswith({str(site)!r})"], check=True, cwd=tmp_path
        )
    for part in (
        "prompts/templates.yaml",
        "inbedder/stopwords_en.txt",
        "inbedder/stopwords_nltk_en.txt",
        "finetune/recipes/mini.yaml",
        "finetune/written/opinions.yaml",
        *(f"inbedder/grouping/report/{name}" for name in ("page.css", "page.js", "page.html.j2", "parts.html.j2")),
        "inbedder/models/mini/adapter_model.safetensors",
        "evaluation/data/intent_emotion.jsonl",
    ):
        assert (site / part).is_file(), part
    assert not [part for part in ("finetune/results", "evaluation/results") if (site / part).exists()]
