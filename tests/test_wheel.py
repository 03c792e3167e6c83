"""The wheel holds what it needs: installed into an empty environment it embeds with a tiny model."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


MOST_BYTES = 27_000_000
"""The adapters of ``mini`` and ``multilingual`` are 7.8 and 16 MB of them."""
SEPARATE = ("small", "medium")
"""The models whose adapters are packages of their own."""


@pytest.fixture(scope="module")
def built_wheels(tmp_path_factory):
    """The sdist and the wheel that is made of it."""
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "site", "dist", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "source")]
    subprocess.run(build, check=True, capture_output=True)
    for name in SEPARATE:
        options = ["--wheel", "--no-isolation", "--outdir", str(folder / name)]
        subprocess.run([*build[:3], *options, str(folder / "source/inbedder/models" / name)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def environment(built_wheels):
    """An environment that holds the wheel; its dependencies are lent from this one, since to download them again would show
    nothing about the wheel."""
    venv.create(built_wheels / "env", with_pip=True)
    python = built_wheels / "env" / "bin" / "python"
    wheel = next(built_wheels.glob("*.whl"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    # What a new environment of Python 3.11 begins with is older than what is lent.
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "setuptools"], check=True)
    site = next((built_wheels / "env" / "lib").glob("python*/site-packages"))
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return built_wheels / "env"


@pytest.fixture
def clean():
    """The environment variables without this repository's path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture
def inbedder(environment, clean, tmp_path):
    """The command of the environment, run in an empty folder."""

    def run(*words):
        process = subprocess.run(
            [environment / "bin" / "inbedder", *words], cwd=tmp_path, env=clean, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    return run


@pytest.mark.slow
def test_the_wheel_is_small_and_holds_neither_tests_nor_results(built_wheels):
    wheel = next(built_wheels.glob("*.whl"))
    assert wheel.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "inbedder",
        "inbedder_finetune",
        "inbedder_evaluation",
    }
    assert not [name for name in names if "/results/" in name or "/tests/" in name or "__pycache__" in name]
    assert "inbedder/py.typed" in names


@pytest.mark.slow
@pytest.mark.parametrize("name", SEPARATE)
def test_the_adapter_of_a_decoder_completes_the_wheel(built_wheels, environment, clean, name):
    adapter = f"inbedder/models/{name}/adapter_model.safetensors"
    (wheel,) = (built_wheels / name).glob(f"inbedder_{name}-*.whl")
    assert [file for file in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in file] == [adapter]
    assert adapter not in zipfile.ZipFile(next(built_wheels.glob("*.whl"))).namelist()
    python = environment / "bin" / "python"
    load = [python, "-c", f"from inbedder.models.bundled import resolve_name; print(resolve_name('{name}'))"]
    before = subprocess.run(load, cwd=built_wheels, env=clean, capture_output=True, text=True)
    assert f"inbedder models install {name} --from adapter_model.safetensors" in before.stderr
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True, env=clean)
    after = subprocess.run(load, cwd=built_wheels, env=clean, capture_output=True, text=True)
    assert after.stdout.strip().endswith(f"models/{name}"), after.stderr
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", f"inbedder-{name}"], check=True, env=clean)


@pytest.mark.slow
def test_the_sdist_holds_what_git_holds(built_wheels):
    """But for what concerns the repository alone."""
    process = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        pytest.skip("no git")
    with tarfile.open(next(built_wheels.glob("*.tar.gz"))) as archive:
        names_in_archive = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in process.stdout.splitlines() if (ROOT / name).exists() and name not in names_in_archive]
    assert [name for name in missing if not name.startswith(".")] == []


@pytest.mark.slow
def test_what_was_built_can_be_published(built_wheels):
    pytest.importorskip("twine")
    process = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *built_wheels.glob("*.whl"), *built_wheels.glob("*.tar.gz")],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout


@pytest.mark.slow
def test_an_empty_environment_groups_measures_and_looks_at_a_recipe(inbedder, tmp_path):
    (tmp_path / "texts.txt").write_text(
        "\n".join(["great food", "cold food", "rude waiter", "kind waiter"] * 3), encoding="utf-8"
    )
    inbedder("cluster", "texts.txt", "-i", "Is the review positive or negative?", "-k", "2", "-o", "report.html")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What is being reviewed?" in inbedder("demo", "-o", "report.html")
    assert "IntentEmotion" in inbedder("evaluate", "--task", "IntentEmotion", "-o", "results.json")
    assert "2,000 rows" in inbedder("finetune", "csts-bi", "--dry-run")
    assert inbedder("answer", "texts.txt", "-i", "How is the waiter?", "-o", "answers.csv") == ""
    assert {path.name for path in tmp_path.iterdir()} == {
        "answers.csv",
        "groups.csv",
        "report.html",
        "results.items",
        "results.json",
        "texts.txt",
    }


@pytest.mark.slow
def test_no_requirement_of_the_environment_is_broken(environment, clean):
    process = subprocess.run([environment / "bin" / "python", "-m", "pip", "check"], env=clean, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


@pytest.mark.slow
def test_the_wheel_embeds_from_an_empty_environment(environment, clean, tmp_path, make_model):
    python, site = environment / "bin" / "python", next((environment / "lib").glob("python*/site-packages"))
    (tmp_path / "texts.txt").write_text("I love cats\nI love dogs\n")
    command = [environment / "bin" / "inbedder", "embed", "texts.txt", "-i", "@topic", "--model", make_model("opt")]
    subprocess.run(command, check=True, cwd=tmp_path, env=clean)
    assert np.load(tmp_path / "vectors.npy", allow_pickle=False).shape == (2, 32)
    for package in ("inbedder", "inbedder_finetune", "inbedder_evaluation"):
        subprocess.run(
            [python, "-c", f"import {package}; assert {package}.__file__.startswith({str(site)!r})"],
            check=True,
            cwd=tmp_path,
            env=clean,
        )
    for part in (
        "inbedder/prompts/templates.yaml",
        "inbedder/prompting/stopwords_en.txt",
        "inbedder/prompting/stopwords_nltk_en.txt",
        "inbedder_finetune/recipes/mini.yaml",
        "inbedder_finetune/written/opinions.yaml",
        *(f"inbedder/grouping/report/{name}" for name in ("page.css", "script/map.js", "page.html.j2", "parts.html.j2")),
        "inbedder/models/mini/adapter_model.safetensors",
        "inbedder_evaluation/data/intent_emotion.jsonl",
    ):
        assert (site / part).is_file(), part
    assert not [name for name in ("finetune", "evaluation", "prompts") if (site / name).exists()]
