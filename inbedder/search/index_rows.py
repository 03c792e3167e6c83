"""Rows of an index before they have vectors: ids, texts and typed columns of a list or table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.cell_values import is_missing
from inbedder.io.column_types import parse_numbers, shorten_digits
from inbedder.io.columns import explain_missing_text
from inbedder.io.outputs import import_parquet
from inbedder.prompting.tokenization import clean_text

ID, TEXT, GENERIC, EARLIER, INSTRUCTED = "id", "text", "generic", "earlier_layer", "instructed_"
RESULT_COLUMNS = ("score", "generic_score", "instructed_score", "answer")
"""Columns that a search adds to its rows."""
FORBIDDEN_CHARACTERS = (".", "`", "*", "\0")
"""Characters that the engine does not accept in the name of a column."""
NARROW_FLOATS: dict[str, type[np.floating[Any]]] = {
    "float": np.float32,
    "float32": np.float32,
    "halffloat": np.float16,
    "float16": np.float16,
}
"""Types of pyarrow and pandas whose numbers have fewer digits than Python's."""
Record = Mapping[str, Any]
Data = Any
"""Texts (a list of strings), a table (a list of dicts, a pandas frame or a pyarrow table), or ``Rows``."""


@dataclass(frozen=True)
class Rows:
    """Rows of an index before they have vectors."""

    ids: list[str]
    """n distinct ids."""
    texts: list[str]
    """n texts."""
    columns: dict[str, list[Any]]
    """n values of each other column."""


def read_rows(data: Data, *, text_column: str = TEXT, id_column: str | None = None, columns: Sequence[str] | None = None) -> Rows:
    """Read texts or a table.

    Args:
        data: A list of strings, or a table: a list of dicts, a pandas frame or a pyarrow table. Rows are returned as they are.
        text_column: The table's column of texts.
        id_column: The table's column of ids. None takes the column "id" if there is one, else a hash of each row, so that the
            same row always has the same id; equal rows of one table are numbered.
        columns: Other columns to keep; None keeps all.

    Returns:
        The rows.

    Raises:
        InputError: If a text, an id or a column is missing, an id occurs twice, or a column's name cannot be used.
    """
    if isinstance(data, Rows):
        return data
    records = _list_records(data, text_column)
    names = list(dict.fromkeys(str(name) for record in records for name in record))
    for name in [text_column, *([id_column] if id_column else []), *(columns or [])]:
        if records and name not in names:
            raise InputError(f"No column {format_value(name)}. The columns are: {format_names(names)}.")
    if id_column is None and ID in names:
        id_column = ID
    other_columns = [name for name in (names if columns is None else columns) if name not in (text_column, id_column)]
    for name in other_columns:
        if reason := _explain_rejected_name(name):
            raise InputError(f"A column cannot be called {format_value(name)}: {reason}. Rename it, or select the others.")
    texts = []
    for number, record in enumerate(records, start=1):
        if (reason := explain_missing_text(record.get(text_column))) is not None:
            raise InputError(f"Row {number}: the text {reason}. Leave such rows out.")
        texts.append(clean_text(str(record[text_column])))
    values = {name: [_clean_cell(record.get(name)) for record in records] for name in other_columns}
    ids = _hash_rows(texts, values) if id_column is None else _read_ids(records, id_column)
    return Rows(ids, texts, values)


def _explain_rejected_name(name: str) -> str | None:
    """Explain why an index cannot have a column of some name; None if it can."""
    if name in (ID, TEXT, GENERIC, EARLIER, *RESULT_COLUMNS) or name.startswith((INSTRUCTED, "_")):
        return "an index uses this name"
    if not name.strip():
        return "the name is blank"
    if characters := [character for character in FORBIDDEN_CHARACTERS if character in name]:
        return f"the name contains {format_value(characters[0])}"
    if name != clean_text(name):
        return "the name contains half of a surrogate pair"
    return None


def _list_records(data: Data, text_column: str) -> list[Record]:
    if isinstance(data, (str, bytes)):
        raise InputError("Index.create takes a list of texts or a table, not one string. For a file, run: inbedder index build")
    names = [str(name) for name in getattr(data, "column_names", getattr(data, "columns", ()))]
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"Several columns are called {format_names(duplicates)}. Rename or drop them.")
    if hasattr(data, "to_pylist"):
        items, types = list(data.to_pylist()), data.schema.types
    elif hasattr(data, "to_dict"):
        items, types = list(data.to_dict("records")), data.dtypes
    else:
        items, types = list(data), ()
    for name, dtype in zip(names, map(NARROW_FLOATS.get, map(str, types)), strict=False):
        if dtype is not None:
            items = [{**item, name: shorten_digits(item[name], dtype)} for item in items]
    if all(isinstance(item, Mapping) for item in items):
        return [{str(name): cell for name, cell in item.items()} for item in items]
    if any(isinstance(item, Mapping) for item in items):
        raise InputError("Texts and table rows are mixed. Give a list of strings or a list of dicts.")
    return [{text_column: item} for item in items]


def _clean_cell(value: Any) -> Any:
    """Convert a cell to a plain Python value; NaN and an empty cell become None."""
    if hasattr(value, "tolist"):  # a numpy scalar
        value = value.tolist()
    if is_missing(value) or value == "":
        return None
    return clean_text(value) if isinstance(value, str) else value


def _read_ids(records: Sequence[Record], id_column: str) -> list[str]:
    values = [_clean_cell(record.get(id_column)) for record in records]
    for number, value in enumerate(values, start=1):
        if value is None:
            raise InputError(f"Row {number} has no id in column {format_value(id_column)}.")
    ids = [str(value) for value in values]
    duplicates = [name for name, count in Counter(ids).items() if count > 1]
    if duplicates:
        names = format_names(duplicates)
        raise InputError(f"Ids must be unique, but column {format_value(id_column)} holds these more than once: {names}.")
    return ids


def _hash_rows(texts: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> list[str]:
    ids, counts = [], Counter[str]()
    for row, text in enumerate(texts):
        cells = {name: str(values[row]) for name, values in sorted(columns.items()) if values[row] is not None}
        digest = blake2b(json.dumps([text, cells]).encode(), digest_size=8).hexdigest()
        counts[digest] += 1
        ids.append(digest if counts[digest] == 1 else f"{digest}-{counts[digest]}")
    return ids


def to_typed_array(values: Sequence[Any], arrow_type: Any = None, name: str = "") -> Any:
    """Convert values to an array of one type.

    Args:
        values: n values; strings that are all spelled as numbers, as in a .csv, become numbers.
        arrow_type: The column's arrow type; None infers one.
        name: The column, for messages.

    Returns:
        A pyarrow array of n values.

    Raises:
        InputError: If a value does not fit the type.
    """
    pa, _ = import_parquet()
    cells = [value for value in values if value is not None]
    strings = [value for value in cells if isinstance(value, str)]
    if strings and (arrow_type is not None or len(strings) == len(cells)):
        numbers = _parse_as(strings, arrow_type)
        if numbers is not None:
            remaining = iter(numbers)
            values = [next(remaining) if isinstance(value, str) else value for value in values]
    if not cells:
        return pa.nulls(len(values), arrow_type or pa.string())
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        if arrow_type is None or pa.types.is_string(arrow_type):
            return pa.array(
                [value if value is None or isinstance(value, str) else json.dumps(value, default=str) for value in values],
                pa.string(),
            )
        message = f"Column {format_value(name)} holds {arrow_type}, but a new value does not: {error}. Correct the value."
        raise InputError(message) from error


def _parse_as(texts: Sequence[str], arrow_type: Any) -> list[Any] | None:
    """Read texts as numbers, if that is beyond doubt; for a column that has numbers, other spellings of decimals too."""
    numbers = parse_numbers(texts)
    if arrow_type is None:
        return numbers
    pa, _ = import_parquet()
    if pa.types.is_floating(arrow_type):
        with suppress(ValueError):
            return [float(text) for text in texts]
    return numbers if pa.types.is_integer(arrow_type) else None
