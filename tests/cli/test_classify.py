import csv

import pytest

from inbedder import InBedder, classify
from inbedder.classification.categories import Category
from inbedder.classification.category_result import LabelledRows
from inbedder.cli.classify import _describe_accuracy
from tests.cli.test_cli import run

REVIEWS = "id,review,kind\n1,I love cats,pets\n2,The box was crushed,\n3,How do I top up my account?,money\n4,I love dogs,pets\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    (tmp_path / "into.csv").write_text("category,example\nmoney,My card is blocked.\nparcels,\n")
    return tmp_path


@pytest.fixture
def classify_reviews(folder, monkeypatch, make_model):
    """Return a function that runs the command on the reviews."""
    base = ("classify", "reviews.csv", "-i", "What?", "--text-column", "review", "--model", make_model("bert"))
    return lambda *options: run(monkeypatch, *base, *options)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_get_the_librarys_categories_and_keep_their_columns(folder, classify_reviews, make_model, capsys):
    into = ("--into", "pets", "--into", "into.csv")
    assert classify_reviews(*into, "--top", "2", "--label-column", "kind", "-o", "out.csv") == 0
    rows = rows_of(folder / "out.csv")
    assert list(rows[0])[:5] == ["id", "review", "kind", "category", "score"]
    categories = [Category("pets"), Category("money", examples=("My card is blocked.",)), Category("parcels")]
    expected = classify([row["review"] for row in rows], "What?", categories, model=InBedder(make_model("bert")))
    assert [row["category"] for row in rows] == expected.names
    assert [row["category_2"] for row in rows] == [row["category_2"] for row in expected.rows(2)]
    messages = capsys.readouterr().err
    assert "of 3 labelled texts are in their known category" in messages
    assert "example texts per category" not in messages


def test_the_default_output_and_a_report_are_written(folder, classify_reviews, capsys):
    assert classify_reviews("--into", "pets", "--into", "money", "--other") == 0
    assert {row["category"] for row in rows_of(folder / "classified.csv")} <= {"pets", "money", "none of these"}
    messages = capsys.readouterr().err
    assert "is no count of the texts that belong to no category" in messages
    assert "About five example texts per category mostly find more" in messages
    assert classify_reviews("--into", "pets", "--into", "money", "--by", "kind", "-o", "page.html") == 0
    assert "pets" in (folder / "page.html").read_text("utf-8")
    assert "Cramer's V" in capsys.readouterr().out


def test_texts_with_a_small_lead_are_not_sure(folder, classify_reviews, capsys):
    assert classify_reviews("--into", "pets", "--into", "money", "--min-lead", "10") == 0
    assert {row["category"] for row in rows_of(folder / "classified.csv")} == {"not sure"}
    assert "leads by less than 10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--into", "pets"), "Give at least two"),
        (("--into", "pets", "--into", "pets"), "occurs twice"),
        (("--into", "pets", "--into", "money", "--top", "3"), "there are 2 categories"),
        (("--into", "pets", "--into", "money", "-o", "page.doc"), "page.doc"),
        (("--into", "pets", "--into", "money", "-o", "reviews.csv"), "input"),
    ],
)
def test_wrong_options_are_refused_before_the_model_runs(classify_reviews, capsys, options, message):
    assert classify_reviews(*options) == 2
    assert message in " ".join(capsys.readouterr().err.split()).replace("│", "")


def test_a_label_that_is_no_category_counts_as_none_of_these(classify_reviews, capsys):
    into = ("--into", "pets", "--into", "parcels", "--label-column", "kind")
    assert classify_reviews(*into) == 0
    error = capsys.readouterr().err
    assert "of 2 labelled texts" in error
    assert "Labels of 1 text are none of the categories, so 'none of these': allow it with --other." in error
    assert classify_reviews(*into, "--min-score", "1") == 0
    assert "so 'none of these': 1 of them got no category." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--into", "none.csv"), "none.csv"),
        (("--into", "reviews.csv"), "category"),
        (("--into", "x", "--into", "y", "--label-column", "kind"), "None of the labels 'money', 'pets' is a category"),
        (("--into", "pets", "--into", "parcels", "--label-column", "stars"), "No column 'stars'"),
    ],
)
def test_missing_files_columns_and_unknown_labels_are_errors(classify_reviews, capsys, options, message):
    assert classify_reviews(*options) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("agreement", "sentence"),
    [
        (LabelledRows(4, 0.5, categorized_count=4), "50% of 4 labelled texts are in their known category."),
        (
            LabelledRows(4, 0.5, categorized_count=2),
            "50% of 4 labelled texts are in their known category: 100% of the 2 that got a category; 2 got none.",
        ),
        (LabelledRows(4, 0.0), "0% of 4 labelled texts are in their known category: none of them got a category."),
    ],
)
def test_texts_without_a_category_are_told_from_wrong_ones(agreement, sentence):
    assert _describe_accuracy(agreement) == sentence
