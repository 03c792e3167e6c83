import csv
import datetime
import errno
import json
import os
import uuid
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow.parquet
import pytest

from inbedder.errors import InputError
from inbedder.io.outputs import open_vector_writer, write_records
from inbedder.io.tables import read_rows

FULL_WIDTH = ["\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20sum"]
DANGEROUS = ["=1+1", "+1+1", "-1-1", "-a", "@sum", "\t=1", "\r=1", "\n=1", "'=1", "''@a", *FULL_WIDTH]
HARMLESS = ["a=1", " =1", "'a", "'", "", "1-1", "-1", "+1", "-3.25", "-1.000,5", "+5%", "-"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_formulas_are_guarded_in_csv_and_tsv(tmp_path, name):
    rows = [{"n": -i, "share": -0.5, "text": text} for i, text in enumerate([*DANGEROUS, *HARMLESS])]
    write_records(rows, tmp_path / name)
    with (tmp_path / name).open(newline="") as file:
        table = list(csv.reader(file, delimiter="\t" if name == "t.tsv" else ","))
    assert table[0] == ["n", "share", "text"]
    assert table[1:] == [
        *([str(-i), "-0.5", f"'{text}"] for i, text in enumerate(DANGEROUS)),
        *([str(-i - len(DANGEROUS)), "-0.5", text] for i, text in enumerate(HARMLESS)),
    ]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_guarded_cells_are_read_back_as_they_were(tmp_path, name):
    rows = [{"@a": text, "n": ""} for text in [*DANGEROUS, *HARMLESS]]
    write_records(rows, tmp_path / name)
    assert read_rows(str(tmp_path / name)) == rows


def test_what_becomes_a_formula_as_text_is_guarded(tmp_path):
    class Formula:
        def __str__(self):
            return "=A1"

    values = [b"=1+1", bytearray(b"@sum"), memoryview(b"+cmd"), Formula(), Decimal("-1.5"), np.float32(-2)]
    write_records([{str(i): value for i, value in enumerate(values)}], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[1] == "'=1+1,'@sum,'+cmd,'=A1,-1.5,-2.0"


def test_column_names_are_guarded(tmp_path):
    write_records([{"=1+1": "a b"}], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines() == ["'=1+1", "a b"]


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t")])
def test_cells_with_any_delimiter_are_quoted(tmp_path, name, delimiter):
    cells = ["a;=1+1", "a\tb", "a,b", "a|b", 'a"b', "a b", ""]
    write_records([dict(zip("abcdefg", cells, strict=True))], tmp_path / name)
    line = (tmp_path / name).read_text().splitlines()[1]
    assert line == delimiter.join(['"a;=1+1"', '"a\tb"', '"a,b"', '"a|b"', '"a""b"', "a b", ""])
    assert list(read_rows(str(tmp_path / name))[0].values()) == cells


def test_a_row_of_one_empty_cell_is_not_a_blank_line(tmp_path):
    write_records([{"text": "a"}, {"text": None}, {"text": float("nan")}], tmp_path / "t.csv")
    assert read_rows(str(tmp_path / "t.csv")) == [{"text": "a"}, {"text": ""}, {"text": ""}]


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_json_has_null_for_nan_and_infinity(tmp_path, name):
    write_records([{"a": float("nan"), "b": [float("inf")], "c": {"d": -float("inf")}, "e": 0.5}], tmp_path / name)

    def refuse(constant):
        raise AssertionError(constant)

    rows = json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    assert (rows[0] if name == "t.json" else rows) == {"a": None, "b": [None], "c": {"d": None}, "e": 0.5}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.xlsx"])
def test_ids_and_bytes_are_written_as_text(tmp_path, name):
    if name == "t.xlsx":
        pytest.importorskip("openpyxl")
    key = uuid.uuid4()
    write_records([{"id": key, "mixed": b"a\xc3\xa9"}, {"id": "x", "mixed": True}], tmp_path / name)
    first, second = read_rows(str(tmp_path / name))
    assert (first, second["id"], str(second["mixed"])) == ({"id": str(key), "mixed": "aé"}, "x", "True")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_the_guard_can_be_turned_off(tmp_path, name):
    rows = [{"text": text} for text in DANGEROUS]
    write_records(rows, tmp_path / name, guard_cells=False)
    with (tmp_path / name).open(newline="") as file:
        assert [cells[0] for cells in csv.reader(file, delimiter="\t" if name == "t.tsv" else ",")] == ["text", *DANGEROUS]


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet", "t.xlsx"])
def test_other_tables_contain_texts_unchanged(tmp_path, name):
    if name == "t.xlsx":
        pytest.importorskip("openpyxl")
    rows = [{"text": text} for text in DANGEROUS if name != "t.xlsx" or "\r" not in text]  # XML has one line ending
    write_records(rows, tmp_path / name)
    assert read_rows(str(tmp_path / name)) == rows


DAY = datetime.date(2024, 1, 2)
NOON = datetime.datetime(2024, 1, 2, 12)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("t.csv", {"day": "2024-01-02", "noon": "2024-01-02 12:00:00", "price": "1.50", "tags": '["é", 1]', "mixed": "a"}),
        ("t.jsonl", {"day": "2024-01-02", "noon": "2024-01-02 12:00:00", "price": "1.50", "tags": ["é", 1], "mixed": "a"}),
        ("t.parquet", {"day": DAY, "noon": NOON, "price": Decimal("1.50"), "tags": '["é", 1]', "mixed": "a"}),
        ("t.xlsx", {"day": DAY, "noon": NOON, "price": 1.5, "tags": '["é", 1]', "mixed": "a"}),
    ],
)
def test_dates_and_other_values_are_written(tmp_path, name, cells):
    if name == "t.xlsx":
        pytest.importorskip("openpyxl")
    row = {"day": DAY, "noon": NOON, "price": Decimal("1.50"), "tags": ["é", 1], "mixed": "a"}
    write_records([row, {"day": None, "mixed": 7, "more": True}], tmp_path / name)
    first, second = read_rows(str(tmp_path / name))
    assert {column: first[column] for column in cells} == cells
    empty = "" if name == "t.csv" else None
    assert second.get("day") == empty
    assert str(second["mixed"]) == "7"
    assert str(second["more"]) == "True"
    assert first.get("more") == empty


def test_vectors_are_written_through_a_link(tmp_path):
    (tmp_path / "link.npy").symlink_to("real.npy")
    with open_vector_writer(tmp_path / "link.npy", 1) as writer:
        writer.add([1], ["a"], np.ones((1, 2), np.float32))
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").tolist() == [[1, 1]]


@pytest.mark.parametrize("name", ["t.npy", "t.parquet"])
def test_vectors_written_in_batches_are_one_table(tmp_path, name):
    vectors = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    texts = [*"abcde", "lone \ud800", "😀"]
    with open_vector_writer(tmp_path / name, 7) as writer:
        for start in (0, 3, 4):
            stop = {0: 3, 3: 4, 4: 7}[start]
            writer.add(range(start + 1, stop + 1), texts[start:stop], vectors[start:stop])
        assert not (tmp_path / name).exists()
    if name == "t.npy":
        np.testing.assert_array_equal(np.load(tmp_path / name, mmap_mode="r"), vectors)
        return
    rows = read_rows(str(tmp_path / name))
    assert [row["row"] for row in rows] == list(range(1, 8))
    assert [row["text"] for row in rows][:5] == [*"abcde"]
    np.testing.assert_array_equal(np.array([row["embedding"] for row in rows], np.float32), vectors)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_dtype_of_vectors_is_kept(tmp_path, dtype):
    vectors = np.array([[1, 2, 3], [4, 5, 127]], dtype=dtype)
    for name in ("v.npy", "v.parquet"):
        with open_vector_writer(tmp_path / name, 2) as writer:
            writer.add([1, 2], ["a", "b"], vectors)
    array = np.load(tmp_path / "v.npy")
    column = pyarrow.parquet.read_table(tmp_path / "v.parquet")["embedding"]
    assert (array.dtype, str(column.type)) == (dtype, f"list<element: {dtype}>")
    assert array.tolist() == column.to_pylist() == vectors.tolist()


@pytest.mark.parametrize("name", ["t.npy", "t.parquet"])
def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path, name, monkeypatch):
    def raise_disk_full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match="No space left on device"), open_vector_writer(tmp_path / name, 2) as writer:
        writer.add([1], ["a"], np.ones((1, 3), np.float32))
        monkeypatch.setattr(writer, "file", SimpleNamespace(tell=lambda: 1, write=raise_disk_full, close=writer.file.close))
        monkeypatch.setattr(
            writer, "table", writer.table and SimpleNamespace(write_table=raise_disk_full, close=writer.table.close)
        )
        writer.add([2], ["b"], np.ones((1, 3), np.float32))
    assert os.listdir(tmp_path) == []


def test_a_flipped_bit_in_a_written_parquet_file_is_detected(tmp_path):
    path = tmp_path / "t.parquet"
    with open_vector_writer(path, 1) as writer:
        writer.add([1], ["I love cats"], np.ones((1, 4), np.float32))
    write_records([{"text": "I love dogs"}], tmp_path / "r.parquet")
    for file, text in ((path, b"love cats"), (tmp_path / "r.parquet", b"love dogs")):
        content = bytearray(file.read_bytes())
        content[content.index(text)] ^= 1  # the first match is in the page; statistics follow
        file.write_bytes(content)
        with pytest.raises(InputError, match="CRC"):
            read_rows(str(file))


FIRST_DAY, TIME = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5, 30)
ZONED = TIME.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=3)))
PRECISE = pandas.Timestamp("2020-01-01 00:00:00.123456789")


@pytest.mark.parametrize("values", [[FIRST_DAY, TIME], [TIME, FIRST_DAY], [TIME, ZONED], [ZONED, TIME, FIRST_DAY]], ids=str)
def test_dates_of_several_kinds_lose_neither_time_nor_zone_in_parquet(tmp_path, values):
    write_records([{"when": value} for value in [*values, None]], tmp_path / "t.parquet")
    assert [row["when"] for row in read_rows(str(tmp_path / "t.parquet"))] == [*map(str, values), None]


@pytest.mark.parametrize(
    "values", [[FIRST_DAY, FIRST_DAY], [TIME, TIME], [ZONED, ZONED], [PRECISE, PRECISE], [PRECISE.tz_localize("UTC")]], ids=str
)
def test_dates_of_one_kind_keep_their_type_in_parquet(tmp_path, values):
    write_records([{"when": value} for value in values], tmp_path / "t.parquet")
    assert [row["when"] for row in read_rows(str(tmp_path / "t.parquet"))] == values
