import contextlib
import datetime
import random

import pyarrow
import pyarrow.parquet
import pytest

from inbedder.errors import InputError
from inbedder.io.tables import find_columns, open_texts, read_rows, read_table

LAST_SECOND = 253402300799
"""9999-12-31 23:59:59 in UTC."""


def write(folder, **columns):
    """Write columns as a .parquet file."""
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    return str(folder / "t.parquet")


def make_times(*seconds):
    """Make times in Berlin's zone."""
    return pyarrow.array(seconds, pyarrow.timestamp("ms", "Europe/Berlin"))


def test_a_time_after_the_year_9999_is_read_as_text(tmp_path):
    path = write(tmp_path, text=["a b", "c d", "e f"], until=make_times(LAST_SECOND * 1000, 0, None))
    first, second, third = (row["until"] for row in read_table(path, "text").records)
    assert first == "10000-01-01 00:59:59.000+0100"
    assert second == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert third is None


def test_a_time_inside_a_nested_cell_is_read_as_text(tmp_path):
    times = make_times(LAST_SECOND * 1000)
    lists = pyarrow.ListArray.from_arrays([0, 1], times)
    path = write(tmp_path, text=["a b"], struct=pyarrow.StructArray.from_arrays([times], ["until"]), list=lists)
    text = "10000-01-01 00:59:59.000+0100"
    assert read_rows(path) == [{"text": "a b", "struct": {"until": text}, "list": [text]}]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pyarrow.array([2932897], pyarrow.date32()), "10000-01-01"),
        (pyarrow.array([LAST_SECOND + 1], pyarrow.timestamp("s")).cast(pyarrow.timestamp("ms")), "10000-01-01 00:00:00.000"),
        (pyarrow.array([2**62], pyarrow.duration("ms")), str(2**62)),
        (pyarrow.array([0], pyarrow.timestamp("ms", "Mars/Olympus")), "1970-01-01 00:00:00.000Z"),
    ],
    ids=["date", "naive time", "duration", "unknown zone"],
)
def test_other_values_that_python_cannot_hold_are_text(tmp_path, column, text):
    assert read_rows(write(tmp_path, text=["a b"], value=column)) == [{"text": "a b", "value": text}]


def test_only_the_columns_that_are_needed_are_converted(tmp_path, monkeypatch):
    path = write(tmp_path, text=["a b"], id=["x"], until=make_times(LAST_SECOND * 1000), unreadable=make_invalid_text())
    with open_texts(path, "text") as texts:
        assert list(texts) == [(1, "a b")]
    assert find_columns(path, "text", "id") == ["text"]
    with pytest.raises(InputError, match=r"column 'unreadable' contains text that is not UTF-8. Write the file again"):
        read_table(path, "text")


def make_invalid_text():
    """Make a column of one text that is not UTF-8."""
    buffers = [None, pyarrow.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pyarrow.py_buffer(b"\xff\xfe")]
    return pyarrow.Array.from_buffers(pyarrow.string(), 1, buffers)


def test_a_missing_column_is_reported_with_the_names_of_all(tmp_path):
    path = write(tmp_path, text=["a b"], stars=[1])
    for columns in (["txt"], ["text", "txt"]):
        with pytest.raises(InputError, match=r"No column 'txt'. The columns are: 'text', 'stars'"), open_texts(path, columns):
            pass
    with pytest.raises(InputError, match=r"No column 'id'. The columns are: 'text', 'stars'. Choose one with --id-column"):
        find_columns(path, "text", "id")


def test_a_file_with_flipped_bits_is_read_or_refused(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"text": ["I love cats"] * 50, "list": [[1, 2]] * 50, "kind": pyarrow.array(["x", "y"] * 25).dictionary_encode()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="none")
    content, generator = path.read_bytes(), random.Random(5)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):
            read_rows(str(path))


def test_numbers_of_few_bits_are_read_with_their_own_digits(tmp_path):
    floats = pyarrow.array([4.1, None], pyarrow.float32())
    lists = pyarrow.array([[4.1], None], pyarrow.list_(pyarrow.float32()))
    halves = pyarrow.array([1.1, 2.0], pyarrow.float64()).cast(pyarrow.float16())
    path = write(tmp_path, text=["a b", "c d"], floats=floats, lists=lists, halves=halves)
    assert read_rows(path) == [
        {"text": "a b", "floats": 4.1, "lists": [4.1], "halves": 1.1},
        {"text": "c d", "floats": None, "lists": None, "halves": 2.0},
    ]


def test_a_text_that_many_rows_share_is_in_memory_once(tmp_path):
    texts = read_table(write(tmp_path, text=["a b" * 1000] * 3000, note=[b"c"] * 3000)).texts
    assert len(texts) == 3000 and len({id(text) for text in texts}) <= 3


def test_a_cell_beyond_the_limit_of_text_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("inbedder.io.parquet_rows.MAX_LINE_CHARACTERS", 10)
    path = write(tmp_path, text=["a b", "c d"], note=["x" * 10, "y" * 11])
    with pytest.raises(InputError, match="column 'note' has a cell of more than 10 bytes"):
        read_rows(path)
    assert read_table(write(tmp_path, text=["a b"], note=["x" * 10])).texts == ["a b"]
