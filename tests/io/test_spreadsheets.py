"""Spreadsheets as people have them are read and written."""

import datetime
import uuid
import zipfile
from decimal import Decimal

import pytest

openpyxl = pytest.importorskip("openpyxl")

from inbedder.errors import InputError, MissingExtraError  # noqa: E402
from inbedder.io.outputs import check_writable, write_records  # noqa: E402
from inbedder.io.tables import open_texts, read_rows, read_table  # noqa: E402


def write_workbook(path, *rows, sheets=("first",)):
    book = openpyxl.Workbook()
    book.active.title = sheets[0]
    for row in rows:
        book.active.append(row)
    for title in sheets[1:]:
        book.create_sheet(title).append(["text"])
    book.save(path)
    return str(path)


def test_texts_numbers_and_dates_of_a_sheet_keep_their_types(tmp_path):
    day = datetime.date(2024, 5, 1)
    path = write_workbook(
        tmp_path / "t.xlsx", ["id", "review", "day", 2024], [1, "I love it", day, 0.5], [2, "not so much", None, True]
    )
    table = read_table(path)
    assert table.texts == ["I love it", "not so much"]
    assert table.text_columns == ["review"]
    assert table.column("day") == [day, None]
    assert table.column("2024") == [0.5, True]
    with open_texts(path) as texts:
        assert list(texts) == [(1, "I love it"), (2, "not so much")]


def test_blank_rows_short_rows_and_columns_without_a_name_are_read(tmp_path):
    rows = [[], ["text", None, "n"], ["a b", "x", 1], [], ["c d"], ["e f", None, None, "beyond"]]
    path = write_workbook(tmp_path / "t.xlsx", *rows)
    table = read_table(path)
    assert table.records == [
        {"text": "a b", "column 2": "x", "n": 1},
        {"text": "c d", "n": None},
        {"text": "e f", "n": None, "column 4": "beyond"},
    ]
    assert table.rows == [1, 3, 4]


def test_cells_with_errors_are_blank_and_named(tmp_path):
    path = write_workbook(tmp_path / "t.xlsx", ["text", "stars"], ["a b", 1], ["#N/A", 2], ["c d", "#REF!"], ["#REF", 3])
    with pytest.warns(UserWarning, match=r"cell A3 contains the error '#N/A'\. Cells with errors are read as empty"):
        table = read_table(path, skip_bad=True)
    assert (table.texts, table.column("stars"), table.skipped) == (["a b", "c d", "#REF"], [1, None, 3], 1)
    with pytest.raises(InputError, match="row 2: column 'text' is empty"), pytest.warns(UserWarning, match="A3"):
        read_table(path)


def test_escapes_of_control_characters_are_decoded(tmp_path):
    path = write_workbook(tmp_path / "t.xlsx", ["te_x0078_t"], ["a_x000D_\nb"], ["_x0009__x0041_"], ["_x005F_x000D_"])
    assert [row["text"] for row in read_rows(path)] == ["a\r\nb", "\tA", "_x000D_"]


@pytest.mark.parametrize("text", ["a\r\nb", "a\rb", "_x000D_", "_x005F_x000D_", "_x_x0041_x0041_", "_x12_", "plain_text"])
def test_a_text_is_written_and_read_unchanged(tmp_path, text):
    write_records([{"text": text}], tmp_path / "t.xlsx")
    assert read_rows(str(tmp_path / "t.xlsx")) == [{"text": text}]


def test_values_without_a_cell_type_are_written_as_text(tmp_path):
    key = uuid.uuid4()
    row = {
        "uuid": key,
        "bytes": b"caf\xc3\xa9 \xff",
        "old": datetime.date(1850, 2, 3),
        "far": Decimal("Infinity"),
        "nan": Decimal("NaN"),
        "complex": 1j,
        "price": Decimal("1.5"),
    }
    write_records([row], tmp_path / "t.xlsx")
    assert read_rows(str(tmp_path / "t.xlsx")) == [
        {
            "uuid": str(key),
            "bytes": "café \\xff",
            "old": "1850-02-03",
            "far": "Infinity",
            "nan": None,
            "complex": "1j",
            "price": 1.5,
        }
    ]


def test_a_header_with_one_name_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"t\.xlsx' contains 'text' twice"):
        read_rows(write_workbook(tmp_path / "t.xlsx", ["text", "text"], ["a", "b"]))


def test_only_the_first_sheet_is_read_and_the_others_are_reported(tmp_path):
    path = write_workbook(tmp_path / "t.xlsx", ["text"], ["a b"], sheets=("first", "second"))
    with pytest.warns(UserWarning, match="reading only the first sheet, 'first', not 'second'"):
        assert read_table(path).texts == ["a b"]


@pytest.mark.parametrize("damage", ["no archive", "another archive", "half", "flipped"])
def test_a_damaged_workbook_is_reported(tmp_path, damage):
    path = tmp_path / "t.xlsx"
    write_workbook(path, ["text"], *[[f"a b {i}"] for i in range(2000)])
    content = path.read_bytes()
    if damage == "another archive":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "a b")
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes(byte ^ 255 for byte in content[middle : middle + 200]) + content[middle + 200 :]
        path.write_bytes({"no archive": b"PK", "half": content[:middle], "flipped": flipped}[damage])
    with pytest.raises(InputError, match=r"t\.xlsx' cannot be read as an \.xlsx file"):
        read_rows(str(path))


def test_missing_and_compressed_workbooks_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"Cannot read .*No such file"):
        read_rows(str(tmp_path / "none.xlsx"))
    with pytest.raises(InputError, match=r"unknown file type '.gz'"):
        read_rows(str(tmp_path / "t.xlsx.gz"))


def test_texts_that_look_like_formulas_are_written_as_texts(tmp_path):
    rows = [{"text": text} for text in ("=1+1", "+1", "@sum", "-1", "plain")]
    write_records(rows, tmp_path / "t.xlsx")
    assert read_rows(str(tmp_path / "t.xlsx")) == rows
    worksheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    assert {cell.data_type for row in worksheet.iter_rows(min_row=2) for cell in row} <= {"s", "inlineStr"}


def test_values_that_a_cell_cannot_hold_are_converted(tmp_path):
    timezone = datetime.timezone(datetime.timedelta(hours=2))
    row = {
        "long id": 1234567890123456789,
        "nan": float("nan"),
        "infinite": float("inf"),
        "zoned": datetime.datetime(2024, 1, 2, 3, tzinfo=timezone),
        "control": "a\x00b\x1b",
        "surrogate": "a\ud83d",
        "nested": {"a": [1]},
        "number": 7,
    }
    write_records([row], tmp_path / "t.xlsx")
    assert read_rows(str(tmp_path / "t.xlsx")) == [
        {
            "long id": "1234567890123456789",
            "nan": None,
            "infinite": "inf",
            "zoned": "2024-01-02 03:00:00+02:00",
            "control": "a\ufffdb\ufffd",
            "surrogate": "a\ufffd",
            "nested": '{"a": [1]}',
            "number": 7,
        }
    ]


def test_texts_longer_than_a_cell_are_cut_and_counted(tmp_path):
    with pytest.warns(UserWarning, match="1 cells were cut to 32,767 characters"):
        write_records([{"text": "x" * 40_000}, {"text": "x" * 32_767}], tmp_path / "t.xlsx")
    assert [len(row["text"]) for row in read_rows(str(tmp_path / "t.xlsx"))] == [32_767, 32_767]


def test_more_rows_than_a_sheet_holds_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("inbedder.io.spreadsheets.MAX_ROWS", 3)
    write_records([{"n": 1}] * 2, tmp_path / "t.xlsx")
    with pytest.raises(InputError, match=r"3 rows are more than the 2 that an \.xlsx file can hold. Write a \.csv"):
        write_records([{"n": 1}] * 3, tmp_path / "u.xlsx")
    assert not (tmp_path / "u.xlsx").exists()


def test_more_columns_than_a_sheet_holds_are_refused(tmp_path):
    write_records([dict.fromkeys(map(str, range(16_384)), 1)], tmp_path / "t.xlsx")
    with pytest.raises(InputError, match=r"16,385 columns are more than the 16,384 that an \.xlsx file can hold"):
        write_records([dict.fromkeys(map(str, range(16_385)), 1)], tmp_path / "u.xlsx")


@pytest.mark.parametrize(("number", "is_read"), [(3, True), (5, True), (6, False), (2_000_000_000, False)])
def test_a_row_number_beyond_the_format_ends_the_reading(tmp_path, monkeypatch, number, is_read):
    monkeypatch.setattr("inbedder.io.spreadsheets.MAX_ROWS", 5)
    path = write_workbook(tmp_path / "t.xlsx", ["text"], ["a b"], ["c d"])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    part = "xl/worksheets/sheet1.xml"
    parts[part] = parts[part].replace(b'<row r="3"', f'<row r="{number}"'.encode()).replace(b'r="A3"', b"")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    if is_read:
        assert read_table(path).rows == [1, number - 1]
    else:
        with pytest.raises(InputError, match="a row has a number above 5, the maximum"):
            read_table(path)


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    path = write_workbook(tmp_path / "t.xlsx", ["text"], ["a b"])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    for function in (lambda: read_table(path), lambda: check_writable(tmp_path / "u.xlsx")):
        with pytest.raises(MissingExtraError, match=r"pip install '\.\[tables\]' in the clone"):
            function()


def format_cells(path, **formats):
    """Write a workbook again with number formats by cell."""
    book = openpyxl.load_workbook(path)
    for cell, number_format in formats.items():
        book.active[cell].number_format = number_format
    book.save(path)


def test_numbers_are_read_with_the_zeros_that_their_format_shows(tmp_path):
    path = write_workbook(
        tmp_path / "t.xlsx", ["text", "zip", "phone", "n"], ["a b", 501, 301234567, 7], ["c d", 1234567, -5, 1.5]
    )
    format_cells(path, B2="00000", B3="00000", C2="(000) 000-000", C3="000", D2="0", D3="00")
    rows = read_rows(path)
    assert [row["zip"] for row in rows] == ["00501", "1234567"]
    assert [row["phone"] for row in rows] == [301234567, -5]  # a bracket before the zeros is no such format
    assert [row["n"] for row in rows] == [7, 1.5]
    format_cells(path, C2="000-000-0000")
    assert read_rows(path)[0]["phone"] == "030-123-4567"


def test_a_formula_without_a_value_is_an_empty_text_in_its_row(tmp_path):
    path = write_workbook(tmp_path / "t.xlsx", ["text"], ["good shoes"], ['=CONCATENATE("It came ","late")'], ["bad"])
    with pytest.warns(UserWarning, match=r"cell A3 contains a formula without a value, as do 1 rows"):
        table = read_table(path, skip_bad=True)
    assert (table.texts, table.skipped, len(table.parsed)) == (["good shoes", "bad"], 1, 3)
    with pytest.raises(InputError, match="row 2: column 'text' is empty"), pytest.warns(UserWarning, match="A3"):
        read_table(path)


def test_a_merged_range_has_its_value_in_every_row(tmp_path):
    rows = [["text", "product", "n"], ["a b", "shoes", 1], ["c d", None, None], ["e f", "bags", 2], [None, None, None], ["g h"]]
    path = write_workbook(tmp_path / "t.xlsx", *rows)
    book = openpyxl.load_workbook(path)
    for cells in ("B2:B3", "B4:B6", "C2:C3"):
        book.active.merge_cells(cells)
    book.save(path)
    with pytest.warns(UserWarning, match=r"merged cells, such as B2:B3"):
        table = read_table(path)
    assert table.column("product") == ["shoes", "shoes", "bags", "bags"]
    assert table.column("n") == [1, 1, 2, None]


def test_a_title_above_the_header_is_refused(tmp_path):
    rows = [["Survey 2024, exported 3 May"], [], ["text", "stars"], ["good", 5]]
    with pytest.raises(InputError, match=r"row 1 has one cell and row 3 has 2\. If row 3 is the header"):
        read_table(write_workbook(tmp_path / "t.xlsx", *rows))
    assert read_table(write_workbook(tmp_path / "u.xlsx", ["text"], ["good"], ["bad", "beyond"])).texts == ["good", "bad"]


def test_strict_open_xml_is_named(tmp_path):
    path = write_workbook(tmp_path / "t.xlsx", ["text"], ["good"])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(
                name, content.replace(b"schemas.openxmlformats.org/spreadsheetml/2006", b"purl.oclc.org/ooxml/spreadsheetml")
            )
    with pytest.raises(InputError, match="it is Strict Open XML"):
        read_table(path)
