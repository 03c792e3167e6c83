import pandas as pd
import pyarrow as pa
import pytest

from inbedder.errors import InputError
from inbedder.search.index_rows import read_rows, to_typed_array

TABLE = [{"text": "a b", "n": 1}, {"text": "c", "n": None}]


@pytest.mark.parametrize("make", [list, pd.DataFrame, pa.Table.from_pylist], ids=["dicts", "pandas", "arrow"])
def test_every_kind_of_table_gives_the_same_texts_and_columns(make):
    rows = read_rows(make(TABLE))
    assert rows.texts == ["a b", "c"]
    assert [None if value is None else int(value) for value in rows.columns["n"]] == [1, None]


def test_plain_texts_have_no_columns():
    rows = read_rows(["a", "b"])
    assert (rows.texts, rows.columns) == (["a", "b"], {})


def test_a_row_always_has_the_same_id_and_equal_rows_are_numbered():
    rows = read_rows(["a", "b", "a"])
    assert rows.ids[2] == rows.ids[0] + "-2"
    assert read_rows(["b", "a"]).ids == [rows.ids[1], rows.ids[0]]
    assert read_rows([{"text": "a", "n": 1}]).ids != read_rows([{"text": "a", "n": 2}]).ids


def test_a_column_called_id_holds_the_ids():
    rows = read_rows([{"id": 7, "text": "a"}, {"id": "x", "text": "b"}])
    assert rows.ids == ["7", "x"]
    assert rows.columns == {}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("one string", {}, "not one string"),
        ([{"text": "a"}, "b"], {}, "mixed"),
        ([{"text": "a"}, {"text": " "}], {}, "Row 2: the text is empty"),
        ([{"text": 3}], {}, "Row 1: the text is 3, not text"),
        ([{"body": "a"}], {}, "No column 'text'"),
        ([{"text": "a"}], {"columns": ["b"]}, "No column 'b'"),
        ([{"text": "a", "score": 1}], {}, "cannot be called 'score'"),
        ([{"text": "a", "instructed_x": 1}], {}, "cannot be called"),
        ([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}], {}, "more than once: '1'"),
        ([{"id": None, "text": "a"}], {}, "Row 1 has no id"),
    ],
)
def test_data_that_cannot_be_used_is_refused(data, options, message):
    with pytest.raises(InputError, match=message):
        read_rows(data, **options)


@pytest.mark.parametrize("name", ["", " ", "a.b", ".", "a`b", "a*", "a\0b", "\ud800", "_rowid", "generic"])
def test_a_name_that_the_engine_refuses_is_named(name):
    with pytest.raises(InputError, match=r"A column cannot be called .*Rename it, or select the others"):
        read_rows([{"text": "a", name: 1}])
    assert read_rows([{"text": "a", name: 1, "n": 2}], columns=["n"]).columns == {"n": [2]}


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table])
def test_columns_of_one_name_are_refused(make):
    table = make({"text": ["a"], "n": [1], "m": [2]})
    table = table.rename_columns(["text", "n", "n"]) if make is pa.table else table.set_axis(["text", "n", "n"], axis=1)
    with pytest.raises(InputError, match="Several columns are called 'n'"):
        read_rows(table)


def test_names_that_are_numbers_become_strings():
    assert read_rows(pd.DataFrame({"text": ["a"], 0: [7]})).columns == {"0": [7]}


def test_columns_that_are_not_selected_are_left_out():
    assert read_rows([{"text": "a", "score": 1, "n": 2}], columns=["n"]).columns == {"n": [2]}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", None, "-20"], "int64"),
        (["1", "2.5"], "double"),
        (["007", "1"], "string"),
        (["1", "one"], "string"),
        ([None, None], "string"),
        ([1, "one"], "string"),
        ([True, False], "bool"),
        ([1, 2.5], "double"),
    ],
)
def test_columns_get_the_type_of_their_values(values, kind):
    assert str(to_typed_array(values).type) == kind


def test_a_column_of_numbers_keeps_its_type_when_strings_are_added():
    assert to_typed_array(["3", None], pa.int64(), "n").to_pylist() == [3, None]
    assert to_typed_array(["3"], pa.string(), "n").to_pylist() == ["3"]
    with pytest.raises(InputError, match="Column 'n' holds int64"):
        to_typed_array(["x"], pa.int64(), "n")
