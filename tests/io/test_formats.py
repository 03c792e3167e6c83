import codecs
import csv
import gzip
import io
import time

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbedder.errors import InputError
from inbedder.io.formats import _read_delimited
from inbedder.io.tables import open_texts, read_rows, read_table

ROWS = [{"id": "1", "text": "Grüße, cats"}, {"id": "2", "text": 'dogs; "too"\nand birds'}]
CSV = 'id,text\n1,"Grüße, cats"\n2,"dogs; ""too""\nand birds"\n'


def test_rows_after_an_open_quote_are_read(tmp_path):
    lines = ["id,text", "1,fine one", '2,"never closed', "3,fine too", '4,"quoted, fine"', "5,last one"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = read_table(str(tmp_path / "t.csv"), skip_bad=True)
    assert table.texts == ["fine one", "fine too", "quoted, fine", "last one"]
    assert (table.rows, table.skipped) == ([1, 3, 4, 5], 1)


def test_each_open_quote_costs_only_its_own_line(tmp_path):
    lines = [line for i in range(1000) for line in (f'{i},"open', f"{i},fine row", f'{i},"fine ""quoted"" row"')]
    (tmp_path / "t.csv").write_text("id,text\n" + "\n".join(lines) + "\n")
    table = read_table(str(tmp_path / "t.csv"), skip_bad=True)
    assert (len(table.texts), table.skipped) == (2000, 1000)
    assert set(table.texts) == {"fine row", 'fine "quoted" row'}


def test_text_after_a_closing_quote_is_one_bad_row(tmp_path):
    (tmp_path / "t.csv").write_text('id,text\n1,fine one\n2,"so" it goes\n3,last one\n')
    table = read_table(str(tmp_path / "t.csv"), skip_bad=True)
    assert (table.texts, table.rows, table.skipped) == (["fine one", "last one"], [1, 3], 1)


def test_a_header_with_an_open_quote_is_named(tmp_path):
    (tmp_path / "t.csv").write_text('id,"text\n1,fine one\n')
    with pytest.raises(InputError, match="The header is not readable as csv"):
        read_table(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("delimiter", ";\t|")
def test_the_delimiter_of_a_csv_is_detected(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    path.write_text(
        delimiter.join(("id", "text", "n")) + "\n" + "".join(f"{i}{delimiter}a, b or c{delimiter}3,5\n" for i in "12")
    )
    assert read_rows(str(path)) == [{"id": i, "text": "a, b or c", "n": "3,5"} for i in "12"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("text;or not\nI love cats\n", [{"text;or not": "I love cats"}]),
        ("id,text\n1,a; b; c\n", [{"id": "1", "text": "a; b; c"}]),
        ("id,a;b\n1,c;d\n", [{"id": "1", "a;b": "c;d"}]),
        ('id,"a; b; c"\n1,"d; e"\n', [{"id": "1", "a; b; c": "d; e"}]),
    ],
)
def test_a_semicolon_in_a_csv_with_commas_is_text(tmp_path, content, rows):
    (tmp_path / "t.csv").write_text(content)
    assert read_rows(str(tmp_path / "t.csv")) == rows


@pytest.mark.parametrize("first_line", ["sep=;", '"sep=;"'])
def test_a_first_line_can_set_the_delimiter(tmp_path, first_line):
    (tmp_path / "t.csv").write_text(f"{first_line}\r\na,b;c\r\n1,2;3\r\n")
    assert read_rows(str(tmp_path / "t.csv")) == [{"a,b": "1,2", "c": "3"}]


def test_an_explicit_delimiter_is_used(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text:n,n;n\nI love cats:1,2;3\n")
    assert read_table(str(path), "text", delimiter=":").texts == ["I love cats"]
    with open_texts(str(path), "text", delimiter=":") as texts:
        assert list(texts) == [(1, "I love cats")]


def test_unquoted_semicolons_in_most_texts_are_reported(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id;text;n\n1;a, b; c;1\n2;d; e;2\n3;f;3\n")
    with pytest.raises(InputError, match=r"row 1: 4 cells under 3 columns, delimited by ';'\..*set it with --delimiter"):
        read_table(str(path), "text")
    assert read_table(str(path), "text", skip_bad=True).texts == ["f"]


def test_bad_rows_and_long_rows_do_not_hide_the_delimiter(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id;text;n\n1;a, b;1\n2;c;d;2\n3;e, f;3\n")
    table = read_table(str(path), "text", skip_bad=True)
    assert (table.texts, table.skipped) == (["a, b", "e, f"], 1)
    text = "a line, and\n" * 500
    path.write_text(f'id;text;n\n1;"{text}";1\n')
    assert read_rows(str(path)) == [{"id": "1", "text": text, "n": "1"}]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"), max_size=8)


@given(st.integers(2, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=6)))
def test_csv_round_trips(rows):
    file = io.StringIO(newline="")
    header = [f"column {i}" for i in range(len(rows[0]))]
    csv.writer(file).writerows([header, *rows])
    file.seek(0)
    assert [row for _, row in _read_delimited(file, ",;\t|")] == [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8"])
@pytest.mark.parametrize("compressed", [False, True])
def test_encoding_and_gzip_are_detected_from_the_first_bytes(tmp_path, encoding, compressed):
    content = {"utf-16-be": codecs.BOM_UTF16_BE, "utf-8": codecs.BOM_UTF8}.get(encoding, b"") + CSV.encode(encoding)
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(content) if compressed else content)
    assert read_rows(str(path)) == ROWS


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.txt", "t.tsv"])
def test_every_text_format_may_be_compressed_utf_16(tmp_path, name):
    content = {"t.jsonl": '{"text": "a b"}\n', "t.json": '[{"text": "a b"}]', "t.txt": "a b\n", "t.tsv": "text\tn\na b\t1\n"}[
        name
    ]
    (tmp_path / name).write_bytes(gzip.compress(content.encode("utf-16")))
    assert read_table(str(tmp_path / name)).texts == ["a b"]


def test_standard_input_may_be_compressed_and_stays_open(monkeypatch):
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress("a 😀\nb\n".encode("utf-16")))))
    monkeypatch.setattr("sys.stdin", stdin)
    assert read_table("-").texts == ["a 😀", "b"]
    assert not stdin.buffer.closed


def test_utf_16_without_a_mark_and_damaged_utf_16_are_reported(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("I love cats\n".encode("utf-16-le"))
    with pytest.raises(InputError, match=r"contains many zero bytes, as UTF-16 does.*iconv -f utf-16le"):
        read_table(str(path))
    path.write_bytes("I love cats\n".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"begins as utf-16.* text does but is damaged \(truncated data\)"):
        read_table(str(path))


def test_a_flipped_bit_in_a_parquet_file_with_checksums_is_reported(tmp_path):
    path = tmp_path / "t.parquet"
    table = pyarrow.table({"text": ["I love cats", "I love dogs"]})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pyarrow.parquet.write_table(table, path, write_page_checksum=True, **options)
    content = bytearray(path.read_bytes())
    content[content.index(b"love cats")] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"t\.parquet': .*CRC"):
        read_table(str(path))


def test_two_parquet_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array(["a b"]), pyarrow.array(["c d"])], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet' contains 'text' twice"):
        read_table(str(tmp_path / "t.parquet"))


def test_a_hundred_thousand_repeated_header_names_are_refused_at_once(tmp_path):
    names = [f"column{i}" for i in range(50_000)]
    (tmp_path / "t.csv").write_text(",".join(names * 2) + "\n")
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"The header contains 'column0', .* and 49,980 more twice"):
        read_table(str(tmp_path / "t.csv"))
    assert time.perf_counter() - start < 5  # counting names pairwise took minutes


def test_deeply_nested_json_is_a_bad_row(tmp_path):
    nested = "[" * 100_000 + "]" * 100_000
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"text": "fine one"}}\n{nested}\n{{"text": {nested[99_100:100_900]}}}\n{{"text": "last one"}}\n')
    with pytest.raises(InputError, match="row 2: nested too deeply"):
        read_table(str(path))
    table = read_table(str(path), skip_bad=True)
    assert (table.texts, table.rows, table.skipped) == (["fine one", "last one"], [1, 4], 2)
    (tmp_path / "t.json").write_text(nested)
    with pytest.raises(InputError, match="is nested too deeply"):
        read_table(str(tmp_path / "t.json"))


@pytest.mark.parametrize("line", ['{"text": "a", "text": "b"}', '{"text": "a", "more": {"x": 1, "x": 2}}'])
def test_a_name_that_occurs_twice_in_an_object_is_refused(tmp_path, line):
    (tmp_path / "t.jsonl").write_text(f'{line}\n{{"text": "c"}}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"row 1: not JSON .* occurs twice in an object"):
        read_table(str(tmp_path / "t.jsonl"))
    assert read_table(str(tmp_path / "t.jsonl"), skip_bad=True).texts == ["c"]
    (tmp_path / "t.json").write_text(f"[{line}]", encoding="utf-8")
    with pytest.raises(InputError, match="occurs twice in an object"):
        read_table(str(tmp_path / "t.json"))


def test_comments_above_a_csv_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("# exported by a tool\ntext,stars\na b,5\n", encoding="utf-8")
    with pytest.raises(InputError, match="lines that begin with # are comments, remove them"):
        read_table(str(tmp_path / "t.csv"))
