import csv

import pytest

from inbedder import Codebook
from inbedder.classification.category_result import MAX_GAP
from inbedder.cli.classify import MaxGap
from tests.cli.test_cli import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{word} {number}" for word in ("I love cats", "The box was crushed", "My card is blocked") for number in range(8)]
    (tmp_path / "a.csv").write_text("\n".join(["text", *rows, ""]))
    return tmp_path


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_codebook_is_made_applied_and_updated(folder, monkeypatch, make_model, capsys):
    base = ("codebook", "a.csv", "-i", "What?", "-k", "3", "--model", make_model("bert"))
    assert run(monkeypatch, *base, "-o", "codes.yaml", "-o", "codes.csv") == 0
    codebook = Codebook.load("codes.yaml")
    assert len(codebook.codes) == 3 and "classify TABLE --codebook codes.yaml" in capsys.readouterr().err
    assert {row["category"] for row in rows_of(folder / "codes.csv")} == {code.name for code in codebook.codes}
    assert run(monkeypatch, *base) == 2
    assert "exists, perhaps with your edits" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert run(monkeypatch, "classify", "a.csv", "--codebook", "codes.yaml", "--many", "-o", "coded.csv") == 0
    coded = rows_of(folder / "coded.csv")
    for code in codebook.codes:
        assert sum(row["category"] == code.name for row in coded) == round(code.share * 24)
        members = [row[f"category: {code.name}"] == "1" for row in coded]
        assert members == [code.name in row["categories"].split("; ") for row in coded]
    assert run(monkeypatch, "codebook", "--update", "codes.yaml", "a.csv", "-o", "codes_2.yaml") == 0
    assert [code.state for code in Codebook.load("codes_2.yaml").codes] == ["matched"] * 3
    assert run(monkeypatch, "classify", "a.csv", "--codebook", "codes.yaml", "--model", make_model("opt"), "-o", "b.csv") == 0
    assert "so every text gets a category" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("codebook", "a.csv"), "give the question"),
        (("codebook", "a.csv", "--update", "x.yaml", "-i", "What?"), "the codebook has its question"),
        (("codebook", "a.csv", "--update", "x.yaml", "-k", "3"), "an update keeps the codes"),
        (("codebook", "a.csv", "-i", "What?", "-o", "codes.html"), "give a file that ends in .yaml"),
        (("classify", "a.csv", "-i", "What?"), "give either categories or a codebook"),
        (("classify", "a.csv", "--codebook", "x.yaml", "-i", "What?"), "the codebook has its question"),
        (("classify", "a.csv", "--codebook", "x.yaml", "--max-gap", "0.1"), "this needs --many"),
    ],
)
def test_wrong_arguments_are_usage_errors(folder, monkeypatch, capsys, arguments, message):
    assert run(monkeypatch, *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_help_says_the_default_gap():
    assert f"default: {MAX_GAP}" in MaxGap.__metadata__[0].help
