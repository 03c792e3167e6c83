import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("run_paper", ROOT / "scripts" / "reproduce" / "run_paper.py")
run_paper = sys.modules["run_paper"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run_paper)
EXAMPLE = """
title: Example
models: {a/b: causal, c/d: masked}
parts:
  - {part: Section 2, content: poolings, state: run here, files: [inbedder/vectors/pooling.py]}
  - part: Table 1
    content: two models
    state: ready
    note: "[Never run](here)."
    steps:
      - command: inbedder finetune opt-1.3b --set training.output={out}/x
        makes: "{out}/x"
      - command: python -c "print('{model_name} reads {data}')" --model {model}
        for: {model: [a/b, c/d]}
        fills: row {model}
        data: [STS-B]
        needs: a GPU
"""


@pytest.fixture
def example(tmp_path, monkeypatch):
    (tmp_path / "example.yaml").write_text(EXAMPLE)
    monkeypatch.setattr(run_paper, "FOLDER", tmp_path)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["run_paper.py", *map(str, arguments)])
    run_paper.main()


def test_a_step_is_one_command_per_value(example):
    training, first, second = run_paper.read_paper("example").parts[1].steps
    assert (training.recipe, training.models, training.fills) == ("opt-1.3b", ("facebook/opt-1.3b",), "Table 1")
    assert first.command == "python -c \"print('b reads {data}')\" --model a/b"
    assert (second.models, second.fills, second.data, second.needs) == (("c/d",), "row c/d", ("STS-B",), "a GPU")


def test_a_dry_run_prints_commands_models_data_and_cells(example, monkeypatch, capsys):
    run(monkeypatch, "example", "--dry-run", "--only", "table 1")
    printed = capsys.readouterr().out
    assert printed.startswith("Table 1: two models (ready)\n  Never run (here).\n  $ inbedder finetune opt-1.3b")
    assert "training.output=runs/reproduce/example/x\n" in printed
    assert "      models: c/d\n      data: STS-B\n      fills: row c/d\n      needs: a GPU\n" in printed
    assert "poolings" not in printed


def test_a_run_skips_finished_trainings_and_asks_for_data(example, monkeypatch, capfd):
    (example / "x").mkdir()
    with pytest.raises(SystemExit, match="Table 1: it reads your data, so give --data FOLDER"):
        run(monkeypatch, "example", "--out", example)
    assert "done before: inbedder finetune" in capfd.readouterr().out
    run(monkeypatch, "example", "--out", example, "--data", example)
    assert f"b reads {example}\n" in capfd.readouterr().out


def test_folders_are_relative_to_where_the_user_is(example, monkeypatch, capfd):
    (example / "x").mkdir()
    (example / "my data").mkdir()
    monkeypatch.chdir(example)
    run(monkeypatch, "example", "--out", ".", "--data", "my data", "--dry-run")
    assert f"training.output={example}/x\n" in capfd.readouterr().out
    monkeypatch.setattr(run_paper, "make_argv", lambda command: [sys.executable, "-c", f"print({shlex.split(command)})"])
    run(monkeypatch, "example", "--out", ".", "--data", "my data")
    printed = capfd.readouterr().out
    assert "done before: inbedder finetune" in printed
    assert f"d reads '{example}/my data'" in printed
    assert not (ROOT / "my data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere"), "error: --data nowhere is not a folder."),
        (("--out", "example.yaml"), "error: --out .*example.yaml cannot be a folder .File exists.*"),
    ],
)
def test_a_wrong_folder_is_one_sentence(example, monkeypatch, arguments, message):
    monkeypatch.chdir(example)
    with pytest.raises(SystemExit, match=f"^{message}$"):
        run(monkeypatch, "example", *arguments)


def test_missing_packages_are_named_with_what_installs_them(example, monkeypatch):
    (example / "example.yaml").write_text(EXAMPLE.replace("inbedder finetune opt-1.3b", "inbedder evaluate --hub --baseline a/b"))
    find_spec = run_paper.importlib.util.find_spec
    monkeypatch.setattr(
        run_paper.importlib.util, "find_spec", lambda name: None if name in ("mteb", "datasets") else find_spec(name)
    )
    with pytest.raises(SystemExit, match=r"^error: .* has no datasets, mteb\. Run in the repository: pip install .*evaluation"):
        run(monkeypatch, "example", "--out", example)
    run(monkeypatch, "example", "--dry-run")


def copy_scripts(folder):
    """Copy the scripts into a clone without an environment."""
    target = folder / "clone" / "scripts" / "reproduce"
    shutil.copytree(ROOT / "scripts" / "reproduce", target)
    return target


def run_script(script, cwd, path, **variables):
    environment = {"PATH": f"{path}:/usr/bin:/bin"} | variables
    return subprocess.run([script, "--dry-run"], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def write_python(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="bash")
def test_a_script_finds_the_python_with_the_packages(tmp_path):
    folder = copy_scripts(tmp_path)
    lacking, having = "exit 1", '[ "$1" = -c ] || echo "$0"'
    fake = tmp_path / "bin"
    write_python(fake / "python", lacking)
    write_python(fake / "python3", lacking)
    completed = run_script(folder / "csts.sh", tmp_path, fake)
    assert completed.returncode == 1
    assert re.fullmatch(r"error: no Python here has inbedder_finetune\. Run .*pip install .*\n", completed.stderr)
    for interpreter in (fake / "python3", folder.parents[1] / ".venv" / "bin" / "python", fake / "python"):
        write_python(interpreter, having)
        assert Path(run_script(folder / "csts.sh", tmp_path, fake).stdout.strip()) == interpreter
    preferred = write_python(tmp_path / "own", having)
    assert Path(run_script(folder / "csts.sh", tmp_path, fake, PYTHON=str(preferred)).stdout.strip()) == preferred


@pytest.mark.skipif(sys.platform == "win32", reason="bash")
def test_objectives_takes_folders_from_where_the_user_is(tmp_path):
    folder = copy_scripts(tmp_path)
    write_python(folder.parents[1] / ".venv" / "bin" / "python", '[ "$1" = -c ] || echo "$PWD $@"')
    write_python(tmp_path / "bin" / "python", "exit 1")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    command = [folder / "objectives.sh", "my data", "out", "corpora"]
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"{tmp_path}/clone -m inbedder finetune mini --set data.folder={tmp_path}/my data" in printed
    assert f"--data {tmp_path}/corpora --limit 600 -o {tmp_path}/out/objectives.json" in printed


def test_a_failed_step_is_listed_after_the_others_have_run(example, monkeypatch, capfd):
    (example / "example.yaml").write_text(
        EXAMPLE.replace("print('{model_name}", "print(1 / ('{model_name}' != 'b'), '{model_name}").replace("{out}/x", "{out}")
    )
    with pytest.raises(SystemExit, match=r"(?s)Correct the causes.*Table 1: exit code 1: python .* --model a/b$"):
        run(monkeypatch, "example", "--out", example, "--data", example)
    assert f"1.0 d reads {example}" in capfd.readouterr().out


@pytest.mark.parametrize(("old", "new"), [("state: ready", "state: perhaps"), ("content:", "why:"), ("data:", "sets:")])
def test_unknown_words_of_a_list_are_refused(example, old, new):
    (example / "example.yaml").write_text(EXAMPLE.replace(old, new))
    with pytest.raises(ValueError, match="unknown"):
        run_paper.read_paper("example")


def test_the_page_names_recipes_and_programs(example):
    assert run_paper.make_page_rows("example")[1:] == [
        ["Section 2", "poolings", "run here", "", "[pooling.py](../inbedder/vectors/pooling.py)"],
        ["Table 1", "two models", "ready", "recipe `opt-1.3b`, `-c`", "[Never run](../here)."],
    ]
