"""The command ``inbedder ask``."""

# ruff: noqa: F811 - a fixture that is imported
import csv
from pathlib import Path

import pytest

pytest.importorskip("lancedb")

from inbedder.grouping.assign.grouping import Grouping
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture

QUESTION = "What is the complaint about?"


@pytest.fixture
def index_folder(folder, monkeypatch, make_model):
    rows = "".join(f"The {thing} is late,{number % 5 + 1}\n" for number, thing in enumerate(["box", "bus", "bed"] * 2))
    Path("rated.csv").write_text(f"text,stars\n{rows}", encoding="utf-8")
    assert run(monkeypatch, "index", "build", "rated.csv", "-o", "i", "--model", make_model("bert")) == 0
    return folder


def test_a_report_a_table_with_the_columns_and_saved_groups_are_written(index_folder, monkeypatch, capsys):
    outputs = ("-o", "report.html", "-o", "rows.csv", "--save", "groups", "--by", "stars", "-k", "2")
    assert run(monkeypatch, "ask", "i", QUESTION, *outputs) == 0
    printed, messages = capsys.readouterr()
    assert f"{QUESTION} x stars" in printed
    assert "Reading 6 of 6 texts, and grouping." in messages
    assert QUESTION in Path("report.html").read_text(encoding="utf-8")
    with Path("rows.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert list(rows[0])[:5] == ["id", "text", "stars", "group", "group_name"]
    assert Grouping.load("groups").question == QUESTION


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing", QUESTION), 1, "holds no index"),
        (("i", " "), 2, "Invalid value for QUESTION: the question is empty"),
        (("i", "@unknown"), 2, "@unknown"),
        (("i", QUESTION, "-k", "many"), 2, "-k"),
        (("i", QUESTION, "-k", "7"), 1, "a number from 1 to 6"),
        (("i", QUESTION, "--by", "price"), 1, "No column 'price'. The columns are: 'id', 'text', 'stars'."),
        (("i", QUESTION, "-o", "groups.txt"), 2, "give a file that ends in"),
        (("i", QUESTION, "--sample", "3"), 2, "50"),
    ],
)
def test_wrong_arguments_are_refused_before_a_text_is_read(index_folder, monkeypatch, capsys, arguments, code, message):
    assert run(monkeypatch, "ask", *arguments) == code
    assert message in capsys.readouterr().err
    assert not Path("report.html").exists()
