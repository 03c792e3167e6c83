import gzip
import tracemalloc

import pytest

from inbedder.errors import InputError
from inbedder.io import formats, text_lines
from inbedder.io.tables import open_texts, read_rows, read_table, stream_rows


@pytest.fixture
def limit(monkeypatch):
    for module in (formats, text_lines):
        monkeypatch.setattr(module, "MAX_LINE_CHARACTERS", 1 << 20)
    return 1 << 20


@pytest.mark.parametrize("name", ["t.txt.gz", "t.csv.gz", "t.jsonl.gz"])
def test_a_line_beyond_the_limit_is_refused_before_it_is_in_memory(tmp_path, limit, name):
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"text\n")
        for _ in range(64):
            file.write(b"a" * (1 << 20))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"line 2: it is longer than 1,048,576 characters, the maximum\. Split it into rows"):
        list(stream_rows(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_line_of_the_maximum_length_is_read(tmp_path, limit):
    (tmp_path / "t.txt").write_text("a" * (limit - 1) + "\n" + "b" * limit)
    assert [len(text) for text in read_table(str(tmp_path / "t.txt")).texts] == [limit - 1, limit]


def test_millions_of_blank_lines_are_not_kept(tmp_path):
    path = tmp_path / "t.txt.gz"
    path.write_bytes(gzip.compress(b"a b\n" + b"\n" * 300_000 + b"c d\n", compresslevel=1))
    tracemalloc.start()
    with open_texts(str(path), skip_bad=True) as texts:
        assert list(texts) == [(1, "a b"), (300_002, "c d")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_an_open_quote_does_not_collect_the_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_ROW_BYTES", 1 << 16)
    path = tmp_path / "t.csv"
    path.write_text('n,text\n1,"open\n' + "2,fine one\n" * 10_000)
    table = read_table(str(path), "text", skip_bad=True)
    assert (len(table.texts), table.skipped) == (10_000, 1)
    with pytest.raises(InputError, match=r"row 1: not readable as csv \(a quoted cell is too long\)\. Check its quotes"):
        read_table(str(path), "text")


def test_the_delimiter_is_detected_from_a_bounded_head(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_HEAD_BYTES", 100)
    (tmp_path / "t.csv").write_text("id;text\n" + "1;a, b\n" * 1000)
    assert read_rows(str(tmp_path / "t.csv")) == [{"id": "1", "text": "a, b"}] * 1000


def test_a_json_file_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "MAX_JSON_CHARACTERS", 1000)
    (tmp_path / "t.json").write_text('[{"text": "' + "a" * 1000 + '"}]')
    with pytest.raises(InputError, match=r"longer than 1,000 characters.* Write one JSON object per line as \.jsonl"):
        read_rows(str(tmp_path / "t.json"))
