import pytest

from inbedder.errors import InputError
from inbedder.io.outputs import write_records
from inbedder.io.tables import open_texts, read_rows, read_table


def write(folder, kind, rows):
    """Write rows of cells as a .csv or an .xlsx."""
    path = folder / f"t{kind}"
    if kind == ".csv":
        path.write_text("".join(",".join(cell or "" for cell in row) + "\n" for row in rows))
        return str(path)
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return str(path)


@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_columns_without_a_name_are_named_by_position(tmp_path, kind):
    path = write(tmp_path, kind, [["text", "stars", None, " "], ["a b", "5", None, None], ["c d", "4", "note", None]])
    table = read_table(path, "text")
    assert table.texts == ["a b", "c d"]
    assert table.records == [{"text": "a b", "stars": "5"}, {"text": "c d", "stars": "4", "column 3": "note"}]
    write_records(table.with_columns({"group": [1, 2]}), tmp_path / "u.csv")
    assert (tmp_path / "u.csv").read_text().splitlines()[0] == "text,stars,column 3,group"


@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_the_index_column_of_pandas_has_a_name(tmp_path, kind):
    path = write(tmp_path, kind, [[None, "text"], ["0", "a b"], ["1", "c d"]])
    assert read_rows(path) == [{"column 1": "0", "text": "a b"}, {"column 1": "1", "text": "c d"}]
    with open_texts(path) as texts:
        assert list(texts) == [(1, "a b"), (2, "c d")]


@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_blank_lines_before_the_header_are_left_out(tmp_path, kind):
    assert read_rows(write(tmp_path, kind, [[], [], ["text", "n"], ["a b", "1"]])) == [{"text": "a b", "n": "1"}]


@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_a_name_by_position_that_exists_is_refused(tmp_path, kind):
    with pytest.raises(InputError, match="contains 'column 2' twice"):
        read_rows(write(tmp_path, kind, [["column 2", None, "text"], ["a b", "1", "x"]]))
