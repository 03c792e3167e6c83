import gzip
import io
import json
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pyarrow.parquet
import pytest

from inbedder.errors import InputError
from inbedder.io.outputs import write_records
from inbedder.io.tables import open_texts, read_rows, read_table

ROWS = [{"id": "1", "text": "I love cats"}, {"id": "2", "text": 'dogs, "too"\nand birds'}]


def write(folder, kind, rows=ROWS):
    path = folder / f"t{kind}"
    if kind == ".txt":
        path.write_text("".join(row["text"].replace("\n", " ") + "\n" for row in rows) + "\n")
    else:
        write_records(rows, path)
    return str(path)


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_round_trips(tmp_path, kind):
    table = read_table(write(tmp_path, kind))
    assert table.texts == [row["text"] for row in ROWS]
    assert table.records == ROWS
    assert table.rows == [1, 2]
    assert table.column("id") == ["1", "2"]


def test_plain_text_is_one_text_per_line(tmp_path):
    assert read_table(write(tmp_path, ".txt")).texts == ["I love cats", 'dogs, "too" and birds']


def test_standard_input_is_one_text_per_line(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("a 😀\nb\n\n".encode())))
    assert read_table("-").texts == ["a 😀", "b"]


def test_standard_input_may_be_numbers_after_a_byte_order_mark(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\ufeff123\n456\n".encode())))
    assert read_table("-").texts == ["123", "456"]


def test_a_header_with_one_name_twice_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("text,text\na b,c d\n")
    with pytest.raises(InputError, match="The header contains 'text' twice"):
        read_table(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_an_unclosed_quote_never_swallows_rows_silently(tmp_path, name):
    (tmp_path / name).write_text('text\nfine one\n"never closed\nlost one\n')
    with pytest.raises(InputError, match=r"row 2: not readable as csv .*Check its quotes"):
        read_table(str(tmp_path / name))
    table = read_table(str(tmp_path / name), skip_bad=True)
    assert (table.texts, table.rows, table.skipped) == (["fine one", "lost one"], [1, 3], 1)


def test_a_byte_order_mark_and_ten_megabytes_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\ufefftext\n" + "word " * 2_000_000 + "\n", encoding="utf-8")
    assert len(read_table(str(path), "text").texts[0]) == 10_000_000


def test_the_text_column_is_the_one_with_several_words(tmp_path):
    rows = [{"id": "a1", "review": "I love it", "stars": "5"}, {"id": "a2", "review": "not so much", "stars": "1"}]
    assert read_table(write(tmp_path, ".csv", rows)).texts == ["I love it", "not so much"]


def test_several_candidates_for_the_text_column_are_listed(tmp_path):
    path = write(tmp_path, ".csv", [{"title": "a b", "body": "c d"}])
    with pytest.raises(InputError, match=r"Several columns contain text; the columns are: 'title', 'body'. Choose one with"):
        read_table(path)
    assert read_table(path, "body").texts == ["c d"]


@pytest.mark.parametrize("empty", ["", " ", None])
def test_a_label_is_not_guessed_as_the_text_if_texts_are_missing(tmp_path, empty):
    rows = [{"id": "1", "review": empty, "label": "very good"}, {"id": "2", "review": empty, "label": "bad"}]
    path = write(tmp_path, ".jsonl", rows)
    with pytest.raises(InputError, match=r"Only 'label' contains text, but the texts may belong in an empty column \('review'\)"):
        read_table(path)
    assert read_table(path, "label").texts == ["very good", "bad"]


def test_blank_cells_do_not_count_against_the_text_column(tmp_path):
    rows = [{"review": "I love it" if i < 4 else " ", "label": "good"} for i in range(10)]
    table = read_table(write(tmp_path, ".csv", rows), skip_bad=True)
    assert (table.text_columns, table.texts, table.skipped) == (["review"], ["I love it"] * 4, 6)


def test_a_column_named_text_is_used_even_if_it_is_empty(tmp_path):
    rows = [{"text": "good", "title": "Very good indeed", "notes": ""}]
    assert read_table(write(tmp_path, ".csv", rows)).texts == ["good"]
    with pytest.raises(InputError, match="row 1: column 'text' is empty"):
        read_table(write(tmp_path, ".csv", [{"text": "", "label": "very good"}]))


@pytest.mark.parametrize("name", ["Text", " TEXT"])
def test_a_column_named_text_is_found_in_any_case(tmp_path, name):
    rows = [{"title": "Very good indeed", name: "good", "body": "a b"}]
    assert read_table(write(tmp_path, ".csv", rows)).texts == ["good"]
    assert read_table(write(tmp_path, ".csv", [{**rows[0], "text": "better"}])).texts == ["better"]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_several_text_columns_are_joined_and_empty_cells_left_out(tmp_path, kind):
    rows = [{"title": "Late", "stars": 1, "body": "came late"}, {"title": "", "stars": 5, "body": "fine"}]
    path = write(tmp_path, kind, [*rows, {"title": "Good", "stars": 5, "body": " "}])
    table = read_table(path, ["title", "body"])
    assert (table.texts, table.text_columns) == (["Late\ncame late", "fine", "Good"], ["title", "body"])
    assert read_table(path, ["body", "title"]).texts[0] == "came late\nLate"
    with open_texts(path, ["title", "body"]) as texts:
        assert [text for _, text in texts] == table.texts
    with pytest.raises(InputError, match="No column 'boby'"):
        read_table(path, ["title", "boby"])


def test_a_row_is_bad_if_its_cells_are_empty_or_one_is_not_text(tmp_path):
    path = write(tmp_path, ".jsonl", [{"a": "x y", "b": None}, {"a": "", "b": " "}, {"a": "x y", "b": 3}, {"a": "", "b": 3}])
    with pytest.raises(InputError, match="row 2: column 'a' is empty"):
        read_table(path, ["a", "b"])
    table = read_table(path, ["a", "b"], skip_bad=True)
    assert (table.texts, table.rows, table.skipped) == (["x y"], [1], 3)


def test_new_columns_follow_those_of_the_table(tmp_path):
    (tmp_path / "t.csv").write_text("text,group,day\ngood,A,2024-01-02\n,B,2024-01-03\none,two,three,four\nbad,C,2024-01-04\n")
    table = read_table(str(tmp_path / "t.csv"), skip_bad=True)
    assert (table.skipped, table.unparsed) == (2, 1)
    assert table.with_columns({"group": [1, 2], "fit": [0.5, 0.25]}) == [
        {"text": "good", "group": "A", "day": "2024-01-02", "group_2": 1, "fit": 0.5},
        {"text": "", "group": "B", "day": "2024-01-03", "group_2": None, "fit": None},
        {"text": "bad", "group": "C", "day": "2024-01-04", "group_2": 2, "fit": 0.25},
    ]


def test_names_in_messages_are_escaped_and_cut(tmp_path):
    (tmp_path / "t.csv").write_text(f"\x1b[31mred,{'long' * 1000}\na b,c d\n")
    with pytest.raises(InputError) as error:
        read_table(str(tmp_path / "t.csv"))
    assert str(error.value).isprintable()
    assert r"'\x1b[31mred'" in str(error.value)
    assert len(str(error.value)) < 400
    with pytest.raises(InputError) as error:
        read_table(str(tmp_path / "\x1b]0;title\x07.csv"))
    assert str(error.value).isprintable()
    (tmp_path / "t.jsonl").write_text('{"text": ["\\u009b2J"]}\n')
    with pytest.raises(InputError) as error:
        read_table(str(tmp_path / "t.jsonl"))
    assert str(error.value).isprintable()


def test_a_long_list_of_columns_is_cut(tmp_path):
    (tmp_path / "t.csv").write_text(",".join(f"c{i}" for i in range(1000)) + "\n" + ",".join(["1"] * 1000) + "\n")
    with pytest.raises(InputError, match=r"'c19' and 980 more\."):
        read_table(str(tmp_path / "t.csv"))


def test_a_table_without_text_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"No column contains text; the columns are: 'a', 'b'"):
        read_table(write(tmp_path, ".csv", [{"a": "1", "b": "2"}]))


def test_a_missing_column_lists_the_columns(tmp_path):
    with pytest.raises(InputError, match=r"No column 'txet'. The columns are: 'id', 'text'"):
        read_table(write(tmp_path, ".csv"), "txet")
    with pytest.raises(InputError, match=r"No column 'label'. The columns are: 'id', 'text'"):
        read_table(write(tmp_path, ".csv")).column("label")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "id,text\n1,fine\n2,\n", r"row 2: column 'text' is empty"),
        ("t.csv", "id,text\n1,fine\n2,a,b\n", r"row 2: 3 cells under 2 columns"),
        ("t.jsonl", '{"text": "fine"}\n{"text": NaN}\n', r"row 2: column 'text' is empty \(NaN\)"),
        ("t.jsonl", '{"text": "fine"}\n{"text": 7}\n', r"row 2: column 'text' is 7, not text"),
        ("t.jsonl", '{"text": "fine"}\nnot json\n', r"row 2: not JSON"),
        ("t.jsonl", '{"text": "fine"}\n[1]\n', r"row 2: \[1\] is not a JSON object"),
        ("t.txt", "fine\n\nlast\n", r"row 2: column 'text' is empty"),
    ],
)
def test_a_bad_row_is_reported_and_can_be_left_out(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message + r".*--skip-bad"):
        read_table(str(tmp_path / name), "text")
    table = read_table(str(tmp_path / name), "text", skip_bad=True)
    assert table.skipped == 1
    assert table.texts[0] == "fine"
    assert 2 not in table.rows


def test_nan_cells_of_parquet_are_bad_rows(tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["fine", None]}), path)
    with pytest.raises(InputError, match=r"row 2: column 'text' is empty \(NaN\)"):
        read_table(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xls", b"PK", r"unknown file type '.xls'. Use one of .csv"),
        ("t.csv", b"text\n\xff\xfe\n", "is not UTF-8 text. Convert it first: iconv"),
        ("t.csv", b"", "has no rows"),
        ("t.csv", b"text\n", "has no rows"),
        ("t.parquet", b"no parquet at all", "is not a parquet file"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(str(tmp_path / name))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"Cannot read .*No such file"):
        read_table(str(tmp_path / "none.csv"))


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".json", ".parquet"])
def test_lone_surrogates_do_not_break_writing(tmp_path, kind):
    path = tmp_path / f"t{kind}"
    write_records([{"text": "a\ud83d", "n": 1}], path)
    assert path.stat().st_size > 0


def test_json_is_a_list_of_rows_and_unknown_types_are_refused(tmp_path):
    write_records(ROWS, tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == ROWS
    with pytest.raises(InputError, match=r"cannot write '.xls'"):
        write_records(ROWS, tmp_path / "t.xls")
    assert not (tmp_path / "t.xls").exists()


def test_compressed_tables_equal_plain_ones(tmp_path):
    (tmp_path / "a.csv").write_text("text,n\nI love cats,1\nI love dogs,2\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    assert read_rows(str(tmp_path / "a.csv.gz")) == read_rows(str(tmp_path / "a.csv"))
    assert read_table(str(tmp_path / "a.csv.gz")).texts == ["I love cats", "I love dogs"]


@pytest.mark.parametrize("damage", [slice(0, 20), slice(5, None)])
def test_a_damaged_archive_is_reported(tmp_path, damage):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"text,n\n" + b"I love cats,1\n" * 50)[damage])
    with pytest.raises(InputError, match=r"Cannot read .*a\.csv\.gz"):
        read_rows(str(path))


def test_json_is_a_list_of_objects(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "I love cats"}, {"text": "I love dogs"}]')
    assert read_table(str(path)).texts == ["I love cats", "I love dogs"]
    path.write_text('{"text": "I love cats"}')
    with pytest.raises(InputError, match=r"is not a JSON list of objects.*\.jsonl"):
        read_rows(str(path))
    path.write_text("[")
    with pytest.raises(InputError, match="is not JSON"):
        read_rows(str(path))
    path.write_text('[{"text": "I love cats"}, 3]')
    with pytest.raises(InputError, match="row 2: 3 is not a JSON object"):
        read_rows(str(path))


def test_parquet_is_not_read_compressed(tmp_path):
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"unknown file type '.gz'"):
        read_rows(str(tmp_path / "a.parquet.gz"))


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".parquet", ".txt"])
def test_a_stream_yields_the_texts_of_the_table_each_time(tmp_path, kind):
    path = write(tmp_path, kind)
    table = read_table(path)
    with open_texts(path) as texts:
        assert (texts.count, texts.skipped, texts.text_columns) == (2, 0, table.text_columns)
        assert list(texts) == list(texts) == list(zip(table.rows, table.texts, strict=True))


def test_a_stream_finds_bad_rows_before_it_yields_any(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,text\n1,fine\n2,\n3,also fine\n4,a,b\n")
    with pytest.raises(InputError, match=r"t.csv', row 2: column 'text' is empty"), open_texts(str(path)):
        pass
    with open_texts(str(path), skip_bad=True) as texts:
        assert (texts.count, texts.skipped) == (2, 2)
        assert list(texts) == [(1, "fine"), (3, "also fine")]
    path.write_text("id,text\n1,\n")
    with pytest.raises(InputError, match="no row has a text in column 'text'"), open_texts(str(path), skip_bad=True):
        pass


def test_a_table_that_changes_while_it_is_read_is_reported(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a\nb\n")
    with open_texts(str(path)) as texts, pytest.raises(InputError, match="changed while it was read"):
        path.write_text("a\nb\nc\n")
        list(texts)


def test_a_stream_from_standard_input_can_be_read_twice(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("a 😀\n\nb\n".encode())))
    with pytest.raises(InputError, match="'-', row 2: column 'text' is empty"), open_texts("-"):
        pass
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("a 😀\nb\n".encode())))
    with open_texts("-") as texts:
        assert list(texts) == list(texts) == [(1, "a 😀"), (2, "b")]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_pipe_is_read_as_a_file_is(tmp_path, name):
    write_records([{"text": "a b"}, {"text": "c d"}], tmp_path / name)
    content = (tmp_path / name).read_bytes()
    pipe = tmp_path / f"pipe.{name}"
    os.mkfifo(pipe)
    for reader in (lambda path: read_table(path).texts, read_stream):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(pipe.write_bytes, content)
            assert reader(str(pipe)) == ["a b", "c d"]


def read_stream(path):
    with open_texts(path) as texts:
        assert list(texts) == list(texts)
        return [text for _, text in texts]


def test_memory_does_not_grow_with_a_stream(tmp_path):
    (tmp_path / "t.txt").write_text("".join(f"text number {i}\n" for i in range(100_000)))
    tracemalloc.start()
    with open_texts(str(tmp_path / "t.txt")) as texts:
        assert sum(1 for _ in texts) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
