import importlib.util
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
    run(monkeypatch, "example", "--out", example, "--data", "here")
    assert "b reads here\n" in capfd.readouterr().out


def test_a_failed_step_is_listed_after_the_others_have_run(example, monkeypatch, capfd):
    (example / "example.yaml").write_text(
        EXAMPLE.replace("print('{model_name}", "print(1 / ('{model_name}' != 'b'), '{model_name}").replace("{out}/x", "{out}")
    )
    with pytest.raises(SystemExit, match=r"(?s)Correct the causes.*Table 1: exit code 1: python .* --model a/b$"):
        run(monkeypatch, "example", "--out", example, "--data", "here")
    assert "1.0 d reads here" in capfd.readouterr().out


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
