import csv
import re
import subprocess
import sys

import pytest

from inbedder.grouping.names.namers import NAMERS
from tests.cli.test_shared_options import invoke, refused

REVIEWS = "id,review\n" + "".join(
    f"{i},{text}\n" for i, text in enumerate(["I love cats", "=late box", "top up?", "I love dogs"])
)
WORDINGS = ("-i", "What?", "-i", "Which thing is it?", "-i", "Do they love animals?")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    return tmp_path


def test_compare_wordings_prints_a_report_and_writes_a_table(folder, make_model):
    model = ("--model", make_model("opt"), "-k", "2")
    code, output = invoke("compare-wordings", "reviews.csv", *WORDINGS, *model, "-o", "moves.csv")
    assert code == 0, output
    assert "Adjusted Rand index of the groupings, 2 groups each" in output
    assert "1. What?" in output and "3. Do they love animals?" in output
    assert "agrees most with the others" in output
    rows = list(csv.DictReader((folder / "moves.csv").open(newline="")))
    input_columns = REVIEWS.splitlines()[0].split(",")
    assert list(rows[0]) == [*input_columns, "moves", "What?", "Which thing is it?", "Do they love animals?"]
    assert rows[1]["review"] == "'=late box"
    moving = sum(row["moves"] != "0" for row in rows)
    assert f"{moving} of 4 rows ({moving / 4:.0%}) change their group" in output
    code, output = invoke("compare-wordings", "reviews.csv", *WORDINGS, *model)
    assert code == 0 and "Written" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-i", "What?"), "at least two different wordings"),
        (("-i", "What?", "-i", "What?"), "at least two different wordings"),
        ((*WORDINGS, "-k", "few"), "a number or auto"),
        ((*WORDINGS, "-o", "moves.html"), "give a file that ends in .csv"),
        ((*WORDINGS, "-o", "reviews.csv"), "is the input itself"),
    ],
    ids=str,
)
def test_an_invalid_comparison_is_refused_before_the_model_is_loaded(folder, arguments, message):
    assert message in refused("compare-wordings", "reviews.csv", "--model", "no/such-model", *arguments)


def test_compare_wordings_reads_and_writes_the_tables_that_cluster_does(folder, make_model):
    openpyxl = pytest.importorskip("openpyxl")
    (folder / "odd.csv").write_text("id:text\n1:cats, dogs\n2:a late box\n3:top up?\n")
    model = ("--model", make_model("opt"), "-k", "2")
    code, output = invoke("compare-wordings", "odd.csv", *WORDINGS, *model, "--delimiter", ":", "-o", "moves.xlsx")
    assert code == 0, output
    rows = list(openpyxl.load_workbook("moves.xlsx").active.iter_rows(values_only=True))
    assert rows[0][:3] == ("id", "text", "moves")
    assert [row[1] for row in rows[1:]] == ["cats, dogs", "a late box", "top up?"]


def test_cluster_groups_once_by_the_wordings_of_one_question(folder, make_model):
    model = ("--model", make_model("opt"), "-k", "2")
    code, output = invoke("cluster", "reviews.csv", *WORDINGS, *model, "--one-question", "-o", "groups.csv")
    assert code == 0, output
    assert "What? / Which thing is it? / Do they love animals?" in output
    rows = list(csv.DictReader((folder / "groups.csv").open(newline="")))
    assert len(rows) == 4
    assert [name for name in rows[0] if name.startswith("group")] == ["group", "group_name"]
    output = refused("cluster", "reviews.csv", *WORDINGS, "--one-question", "--guided", "50", "--model", "no/such-model")
    assert "it maps vectors of one wording" in output


@pytest.mark.parametrize("namer", NAMERS)
def test_each_namer_names_groups_and_no_name_occurs_twice(folder, make_model, namer):
    arguments = ("-i", "What?", "-i", "Which thing?", "-k", "2", "--model", make_model("opt"), "--namer", namer)
    code, output = invoke("cluster", "reviews.csv", *arguments, "-o", "groups.csv", "-o", "page.html")
    assert code == 0, output
    rows = list(csv.DictReader((folder / "groups.csv").open(newline="")))
    names = {(column, row[column]) for row in rows for column in ("group_name: What?", "group_name: Which thing?")}
    assert len(names) == len({name.casefold() for _, name in names}) == 4


def test_cluster_help_lists_every_namer_without_numpy():
    code = "import sys, inbedder.grouping.names.namers; assert not {'numpy', 'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code, printed = invoke("cluster", "--help-all")
    plain = " ".join(printed.replace("│", " ").split())
    assert code == 0
    assert all(f"{name} ({entry.help})" in plain for name, entry in NAMERS.items())


def test_an_unknown_namer_is_refused_before_the_texts_are_encoded(folder, make_model, monkeypatch):
    monkeypatch.setattr("inbedder.embedder.InBedder.encode_many", None)
    code, output = invoke("cluster", "reviews.csv", "-i", "What?", "--model", make_model("opt"), "--namer", "loud")
    assert code == 2
    assert "Unknown namer 'loud'. Choose one of: phrases, words," in output


def test_loose_groups_are_marked_in_the_terminal_with_advice(folder, make_model, monkeypatch):
    monkeypatch.setattr("inbedder.grouping.clustering.measure_stability", lambda *_, **__: [0.9, 0.5])
    monkeypatch.setattr("inbedder.grouping.describe.describe_groups.is_mixed", lambda _group: False)
    code, output = invoke("cluster", "reviews.csv", "-i", "What?", "-k", "2", "--model", make_model("opt"), "-o", "groups.csv")
    assert code == 0, output
    assert re.search(r"2 1 [\w ]+ \u2248 \u2248 marks loose groups", output) and output.count("\u2248") == 2
    assert output.count("Compare with more groups and with fewer (-k)") == 1
