"""The commands ``inbedder index`` and ``inbedder search``."""

# ruff: noqa: F811 - a fixture that is imported
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lancedb")

from inbedder.search import Index
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture

QUESTION = "What is the complaint about?"


@pytest.fixture
def index_folder(folder, monkeypatch, make_model):
    Path("rated.csv").write_text("text,stars\nThe battery died,1\nGreat price,5\nThe box was crushed,2\n", encoding="utf-8")
    assert run(monkeypatch, "index", "build", "rated.csv", "-o", "i", "--model", make_model("bert"), "--instruct", QUESTION) == 0
    return folder


def test_a_refused_column_is_named_first_and_does_not_block_a_rerun(folder, monkeypatch, capsys, make_model):
    (folder / "dots.csv").write_text("reviews.text,reviews.rating\nThe box was crushed and late,2\nGreat price,5\n")
    build = ["index", "build", "dots.csv", "-o", "dots", "--text-column", "reviews.text", "--model"]
    assert run(monkeypatch, *build, "no-such-model") == 1
    assert "A column cannot be called 'reviews.rating'" in capsys.readouterr().err
    assert not (folder / "dots").exists()
    (folder / "dots.csv").write_text("reviews.text,rating\nThe box was crushed and late,2\nGreat price,5\n")
    assert run(monkeypatch, *build, make_model("bert"), "--column", "rating") == 0


def test_an_index_is_built_searched_and_described(index_folder, monkeypatch, capsys):
    assert run(monkeypatch, "search", "i", "battery", "-i", QUESTION, "-k", "2", "--where", "stars < 3", "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(record["text"] for record in records) == ["The battery died", "The box was crushed"]
    assert list(records[0]) == ["id", "text", "stars", "score", "generic_score", "instructed_score", "answer"]
    assert run(monkeypatch, "index", "info", "i") == 0
    output = capsys.readouterr().out
    assert "3 rows of id, text, stars" in output
    assert f"instructed: {QUESTION} (every text encoded)" in output


def test_the_table_shows_answers_with_texts(index_folder, monkeypatch, capsys):
    assert run(monkeypatch, "search", "i", "battery", "-i", QUESTION) == 0
    output, messages = capsys.readouterr()
    assert f"The answer about the query: {Index.open('i').model.answer('battery', QUESTION)[0]}\n" in messages
    assert all(part in output for part in ("score", "answer", "text", "stars", "The battery died"))


def test_control_characters_of_texts_do_not_reach_the_terminal(index_folder, monkeypatch, capsys):
    Path("bad.jsonl").write_text(json.dumps({"text": "red \x1b[31m alarm \u202e"}) + "\n", encoding="utf-8")
    assert run(monkeypatch, "index", "add", "i", "bad.jsonl") == 0
    assert run(monkeypatch, "search", "i", "alarm") == 0
    output = capsys.readouterr().out
    assert "\x1b[31m" not in output
    assert "\\x1b[31m" in output
    assert "\u202e" not in output
    assert "\\u202e" in output


def test_a_terminal_without_unicode_shows_results(index_folder):
    Path("names.jsonl").write_text(json.dumps({"text": "Zażółć gęślą \u732b alarm"}) + "\n", encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(Path(__file__).parents[2])}
    for arguments in (("index", "add", "i", "names.jsonl"), ("search", "i", "alarm")):
        command = [sys.executable, "-m", "inbedder", *arguments]
        result = subprocess.run(command, capture_output=True, encoding="cp1252", env=environment)
        assert result.returncode == 0, result.stderr
    assert "Za?ó?? g??l? ? alarm" in result.stdout


def test_adding_a_file_again_adds_nothing_and_says_so(index_folder, monkeypatch, capsys):
    assert run(monkeypatch, "index", "add", "i", "rated.csv") == 0
    assert "0 rows added, 3 were already present; it now holds 3" in capsys.readouterr().err


def test_compact_and_verify_print_their_results(index_folder, monkeypatch, capsys):
    assert run(monkeypatch, "index", "compact", "i") == 0
    assert run(monkeypatch, "index", "verify", "i") == 0
    assert "3 rows, all intact" in capsys.readouterr().err
    index = Index.open("i")
    index.storage.append(index.storage.table.to_arrow().slice(0, 1).replace_schema_metadata(None))
    assert run(monkeypatch, "index", "verify", "i") == 1
    assert "more than once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("search", "nowhere", "battery"), 1, "holds no index"),
        (("search", "i", "battery", "--where", "nope = 1"), 1, "The columns are: 'id', 'text', 'stars'"),
        (("search", "i", "battery", "--weight", "half"), 2, "a number from 0 to 1"),
        (("index", "build", "rated.csv", "-o", "i"), 1, "already holds an index"),
    ],
)
def test_invalid_arguments_are_refused(index_folder, monkeypatch, capsys, arguments, code, message):
    assert run(monkeypatch, *arguments) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
