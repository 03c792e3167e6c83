"""What goes into an index: texts or a table as ids, texts and typed columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from inbedder.errors import InputError, shown, shown_names
from inbedder.io.columns import why_no_text
from inbedder.io.outputs import import_parquet
from inbedder.prompting.tokenization import clean_text

ID, TEXT, GENERIC, INSTRUCTED = "id", "text", "generic", "instructed_"
FOUND = ("score", "generic_score", "instructed_score", "answer")
"""Columns that a search adds to its rows."""
WHOLE, DECIMAL = re.compile(r"0|-?[1-9]\d{0,17}"), re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
Record = Mapping[str, Any]
Data = Any
"""Texts (a list of strings) or a table: a list of dicts, a pandas frame or a pyarrow table."""


@dataclass(frozen=True)
class Rows:
    """Rows of an index before they have vectors."""

    ids: list[str]
    """n different ids."""
    texts: list[str]
    """n texts."""
    columns: dict[str, list[Any]]
    """n values of each other column."""


def read_rows(data: Data, *, text_column: str = TEXT, id_column: str | None = None, columns: Sequence[str] | None = None) -> Rows:
    """Read texts or a table.

    Args:
        data: A list of strings, or a table: a list of dicts, a pandas frame or a pyarrow table.
        text_column: The table's column of texts.
        id_column: The table's column of ids. None takes the column "id" where there is one, else a hash of the row, so that the
            same row has the same id whenever it is read; equal rows of one table are numbered.
        columns: Other columns to keep; None keeps all.

    Returns:
        The rows.

    Raises:
        InputError: When a text, an id or a column is missing, an id is there twice, or a column's name is taken.
    """
    records = _records(data, text_column)
    names = list(dict.fromkeys(str(name) for record in records for name in record))
    for name in [text_column, *([id_column] if id_column else []), *(columns or [])]:
        if records and name not in names:
            raise InputError(f"No column {shown(name)}. The columns are: {shown_names(names)}.")
    if id_column is None and ID in names:
        id_column = ID
    kept = [name for name in (names if columns is None else columns) if name not in (text_column, id_column)]
    for name in kept:
        if name in (ID, TEXT, GENERIC, *FOUND) or name.startswith((INSTRUCTED, "_")):
            raise InputError(f"A column cannot be called {shown(name)}, which an index uses itself. Rename it or leave it out.")
    texts = []
    for number, record in enumerate(records, start=1):
        if (reason := why_no_text(record.get(text_column))) is not None:
            raise InputError(f"Row {number}: the text {reason}. Leave such rows out.")
        texts.append(clean_text(str(record[text_column])))
    values = {name: [_plain(record.get(name)) for record in records] for name in kept}
    ids = _hashed(texts, values) if id_column is None else _given(records, id_column)
    return Rows(ids, texts, values)


def _records(data: Data, text_column: str) -> list[Record]:
    if isinstance(data, (str, bytes)):
        raise InputError("An index is made of a list of texts or a table, not of one string. A file is read by inbedder index.")
    if hasattr(data, "to_pylist"):
        return list(data.to_pylist())
    if hasattr(data, "to_dict"):
        return list(data.to_dict("records"))
    items = list(data)
    if all(isinstance(item, Mapping) for item in items):
        return items
    if any(isinstance(item, Mapping) for item in items):
        raise InputError("Texts and table rows are mixed. Give a list of strings or a list of dicts.")
    return [{text_column: item} for item in items]


def _plain(value: Any) -> Any:
    """A value as arrow takes it: no number is None, an empty cell too."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if value is None or type(value).__name__ == "NAType" or value != value or value == "":
        return None
    return clean_text(value) if isinstance(value, str) else value


def _given(records: Sequence[Record], id_column: str) -> list[str]:
    found = [_plain(record.get(id_column)) for record in records]
    for number, value in enumerate(found, start=1):
        if value is None:
            raise InputError(f"Row {number} has no id in column {shown(id_column)}.")
    ids = [str(value) for value in found]
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise InputError(f"Ids have to differ, and column {shown(id_column)} holds these more than once: {shown_names(twice)}.")
    return ids


def _hashed(texts: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> list[str]:
    ids, met = [], Counter[str]()
    for row, text in enumerate(texts):
        cells = {name: str(values[row]) for name, values in sorted(columns.items()) if values[row] is not None}
        digest = blake2b(json.dumps([text, cells]).encode(), digest_size=8).hexdigest()
        met[digest] += 1
        ids.append(digest if met[digest] == 1 else f"{digest}-{met[digest]}")
    return ids


def typed(values: Sequence[Any], wanted: Any = None, name: str = "") -> Any:
    """Values as a column of one type.

    Args:
        values: n values; strings that are all whole numbers or all decimals, as in a .csv, become numbers.
        wanted: The arrow type that the column has already; None finds one.
        name: The column, for messages.

    Returns:
        A pyarrow array of n values.

    Raises:
        InputError: When a value does not fit the wanted type.
    """
    pa, _ = import_parquet()
    given = [value for value in values if value is not None]
    strings = [value for value in given if isinstance(value, str)]
    if strings and (wanted is not None or len(strings) == len(given)):
        for pattern, number in ((WHOLE, int), (DECIMAL, float)):
            is_wanted = wanted is None or (pa.types.is_integer(wanted) if number is int else pa.types.is_floating(wanted))
            if is_wanted and all(pattern.fullmatch(value) for value in strings):
                values = [number(value) if isinstance(value, str) else value for value in values]
                break
    if not given:
        return pa.nulls(len(values), wanted or pa.string())
    try:
        return pa.array(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        if wanted is None or pa.types.is_string(wanted):
            return pa.array(
                [value if value is None or isinstance(value, str) else json.dumps(value, default=str) for value in values],
                pa.string(),
            )
        raise InputError(f"Column {shown(name)} holds {wanted}, and a new value is not: {error}. Mend the value.") from error
