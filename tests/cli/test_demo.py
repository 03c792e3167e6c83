import csv
import json
import sys
from pathlib import Path

import pytest

from inbedder import cli
from inbedder.cli.demo import QUESTIONS
from inbedder.runtime.package_data import find_data_folder

ROOT = Path(__file__).parents[2]
BANK_QUESTIONS, REVIEWS = (find_data_folder("inbedder", "demo_texts") / name for name in ("bank_questions.csv", "reviews.csv"))


def run(monkeypatch, *arguments):
    """Run the command line and give its exit code."""
    monkeypatch.setattr(sys, "argv", ["inbedder", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_texts_are_data_of_the_package():
    tables = {}
    for path in (BANK_QUESTIONS, REVIEWS):
        with path.open(encoding="utf-8") as file:
            tables[path] = list(csv.DictReader(file))
    assert [len(rows) for rows in tables.values()] == [400, 400]
    assert {row["polarity"] for row in tables[REVIEWS]} == {"positive", "negative"}
    attribution = (REVIEWS.parent / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "CC BY-SA 4.0" in attribution and "CC BY 4.0" in attribution


def test_the_demo_writes_what_cluster_writes(folder, monkeypatch, make_model, capsys):
    model = make_model("bert")
    (folder / "demo").mkdir()
    assert run(monkeypatch, "demo", "-k", "3", "-o", "demo/page.html", "--model", model) == 0
    assert "Open demo/page.html in a browser." in capsys.readouterr().err
    questions = [word for question in QUESTIONS for word in ("-i", question)]
    outputs = ("-o", "page.html", "-o", "groups.csv")
    assert run(monkeypatch, "cluster", BANK_QUESTIONS, *questions, "-k", "3", *outputs, "--model", model) == 0
    for name in ("page.html", "groups.csv"):
        assert (folder / "demo" / name).read_bytes() == (folder / name).read_bytes()


def test_the_demo_writes_a_page_only(folder, monkeypatch, capsys):
    assert run(monkeypatch, "demo", "-o", "groups.csv") == 2
    assert "give a file that ends in .html" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_wrong_number_of_group_counts_is_refused(folder, monkeypatch, capsys):
    counts = ("-k", "3", "-k", "2", "-k", "2")
    assert run(monkeypatch, "cluster", REVIEWS, "-i", "What?", "-i", "Who?", *counts) == 2
    assert "once per grouping (2 times)" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.slow
def test_the_picture_of_the_readme_shows_the_groups_of_the_demo(folder, monkeypatch):
    """The picture is of float32, because groups differ a little where the processor has bfloat16."""
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)
    assert run(monkeypatch, "demo") == 0
    with open(folder / "groups.csv", encoding="utf-8") as file:
        groups = [row[f"group: {QUESTIONS[0]}"] for row in csv.DictReader(file)]
    pictured = json.loads((ROOT / "docs" / "report.json").read_text(encoding="utf-8"))
    assert [groups.count(str(number)) for number in range(1, len(pictured) + 1)] == [group["texts"] for group in pictured], (
        "Make the picture anew: python scripts/dev/demo_picture.py"
    )
