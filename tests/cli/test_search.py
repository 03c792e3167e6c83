"""``inbedder index`` and ``inbedder search``, and the README's lines about them."""

# ruff: noqa: F811 - a fixture that is imported
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("lancedb")

from inbedder import cli
from inbedder.search import Index
from tests.cli.test_cli import folder, run  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
QUESTION = "What is the complaint about?"
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Search\n")[2].partition("\n## ")[0]


@pytest.fixture
def built(folder, monkeypatch, make_model):
    Path("rated.csv").write_text("text,stars\nThe battery died,1\nGreat price,5\nThe box was crushed,2\n", encoding="utf-8")
    assert run(monkeypatch, "index", "build", "rated.csv", "-o", "i", "--model", make_model("bert"), "--instruct", QUESTION) == 0
    return folder


def test_an_index_is_built_searched_and_told_of(built, monkeypatch, capsys):
    assert run(monkeypatch, "search", "i", "battery", "-i", QUESTION, "-k", "2", "--where", "stars < 3", "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(record["text"] for record in records) == ["The battery died", "The box was crushed"]
    assert list(records[0]) == ["id", "text", "stars", "score", "generic_score", "instructed_score", "answer"]
    assert run(monkeypatch, "index", "info", "i") == 0
    told = capsys.readouterr().out
    assert "3 rows of id, text, stars" in told
    assert f"instructed: {QUESTION} (every text read)" in told


def test_the_table_shows_answers_beside_texts(built, monkeypatch, capsys):
    assert run(monkeypatch, "search", "i", "battery", "-i", QUESTION) == 0
    told = capsys.readouterr().out
    assert all(part in told for part in ("score", "answer", "text", "stars", "The battery died"))


def test_control_characters_of_texts_do_not_reach_the_terminal(built, monkeypatch, capsys):
    Path("bad.jsonl").write_text(json.dumps({"text": "red \x1b[31m alarm"}) + "\n", encoding="utf-8")
    assert run(monkeypatch, "index", "add", "i", "bad.jsonl") == 0
    assert run(monkeypatch, "search", "i", "alarm") == 0
    told = capsys.readouterr().out
    assert "\x1b[31m" not in told
    assert "\\x1b[31m" in told


def test_adding_a_file_again_adds_nothing_and_says_so(built, monkeypatch, capsys):
    assert run(monkeypatch, "index", "add", "i", "rated.csv") == 0
    assert "0 rows added, 3 were there already; it holds 3" in capsys.readouterr().err


def test_compact_and_verify_tell_what_they_found(built, monkeypatch, capsys):
    assert run(monkeypatch, "index", "compact", "i") == 0
    assert run(monkeypatch, "index", "verify", "i") == 0
    assert "3 rows, every one is whole" in capsys.readouterr().err
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
        (("index", "build", "rated.csv", "-o", "i"), 1, "holds an index already"),
    ],
)
def test_what_cannot_be_done_is_told(built, monkeypatch, capsys, arguments, code, message):
    assert run(monkeypatch, *arguments) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_lines_of_the_readme_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    monkeypatch.chdir(tmp_path)
    bash, python = (re.search(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL)[1] for kind in ("bash", "python"))
    lines = [shlex.split(line) for line in bash.splitlines()]
    assert [line[:2] for line in lines] == [
        ["inbedder", "index"],
        ["inbedder", "search"],
        ["inbedder", "search"],
        ["inbedder", "index"],
    ]
    told = []
    for line in lines:
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[1].count("│") >= 5 * 5
    assert told[2].count("negative") >= 5
    assert "400 rows" in told[3]
    exec(compile(python, "README.md", "exec"), {})
    assert "answer" in capsys.readouterr().out
