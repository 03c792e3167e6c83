import csv

import numpy as np
import pytest

from inbedder.outputs import write_answers, write_records, write_vectors
from inbedder.tables import read_rows

DANGEROUS = ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1"]
HARMLESS = ["a=1", " =1", "'=1", "", "1-1"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_texts_that_begin_as_formulas_are_guarded_in_tables_that_spreadsheets_open(tmp_path, name):
    rows = [{"n": -i, "share": -0.5, "text": text} for i, text in enumerate([*DANGEROUS, *HARMLESS])]
    write_records(rows, tmp_path / name)
    with (tmp_path / name).open(newline="") as file:
        found = list(csv.reader(file, delimiter="\t" if name == "t.tsv" else ","))
    assert found[0] == ["n", "share", "text"]
    assert found[1:] == [
        *([str(-i), "-0.5", f"'{text}"] for i, text in enumerate(DANGEROUS)),
        *([str(-i - len(DANGEROUS)), "-0.5", text] for i, text in enumerate(HARMLESS)),
    ]


def test_names_of_columns_are_guarded_too(tmp_path):
    write_records([{"=1+1": "a b"}], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines() == ["'=1+1", "a b"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_the_guard_can_be_turned_off(tmp_path, name):
    rows = [{"text": text} for text in DANGEROUS]
    write_records(rows, tmp_path / name, guard_cells=False)
    assert read_rows(str(tmp_path / name)) == rows


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet"])
def test_other_tables_hold_texts_as_they_are(tmp_path, name):
    rows = [{"text": text} for text in DANGEROUS]
    write_records(rows, tmp_path / name)
    assert read_rows(str(tmp_path / name)) == rows


def test_answers_are_guarded_as_texts_are(tmp_path):
    path = tmp_path / "t.csv"
    write_answers(path, [["=a", "b"]], [1], ["-c"])
    assert read_rows(str(path)) == [{"row": "1", "text": "'-c", "answer_1": "'=a", "answer_2": "b"}]
    write_answers(path, [["=a"]], [1], ["-c"], guard_cells=False)
    assert read_rows(str(path)) == [{"row": "1", "text": "-c", "answer": "=a"}]


def test_vectors_are_written_through_a_link(tmp_path):
    (tmp_path / "link.npy").symlink_to("real.npy")
    write_vectors(tmp_path / "link.npy", np.ones((1, 2), np.float32), [1], ["a"])
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").tolist() == [[1, 1]]
