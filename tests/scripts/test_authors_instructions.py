import importlib.util
import json
import sys
from pathlib import Path

import pytest

from inbedder_evaluation.tasks.robustness import read_authors_instructions, read_original_instruction

SPEC = importlib.util.spec_from_file_location(
    "authors_instructions", Path(__file__).parents[2] / "scripts" / "reproduce" / "authors_instructions.py"
)
authors_instructions = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(authors_instructions)
TASK = """
raise RuntimeError("task files are never run")

class ToyClustering(AbsTaskClustering):
    @property
    def description(self):
        return {
            "name": "ToyClustering",
            "hf_hub_name": "%s/ToyClustering",
            "reference": f"{SITE}/toy",
            "instruction": "Which toy?",
            # "instruction": "Which other toy?",
            "correct_instructions": ["What toy?", "Name the toy."],
            "implicit_instructions": ["Look at the shelf."],
            "incorrect_instructions": ["What time is it?",],
        }
"""


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["authors_instructions.py", *map(str, arguments)])
    authors_instructions.main()


def test_instructions_are_read_without_running_the_task_files(tmp_path, monkeypatch):
    folder = tmp_path / "authors" / "mteb" / "tasks" / "Clustering"
    folder.mkdir(parents=True)
    (folder / "ToyClustering.py").write_text(TASK % "BrandonZYW")
    (folder / "OtherClustering.py").write_text(TASK.replace("Toy", "Other") % "mteb")
    run(monkeypatch, tmp_path / "authors", "-o", tmp_path / "i.json")
    assert list(json.loads((tmp_path / "i.json").read_text())) == ["Toy"]
    expected = {"correct": ["What toy?", "Name the toy."], "implicit": ["Look at the shelf."], "incorrect": ["What time is it?"]}
    assert read_authors_instructions(tmp_path / "i.json") == {"Toy": expected}
    assert read_original_instruction(tmp_path / "i.json", "Toy") == "Which toy?"


def test_a_folder_without_task_files_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="Give the authors' repository"):
        run(monkeypatch, tmp_path, "-o", tmp_path / "i.json")
