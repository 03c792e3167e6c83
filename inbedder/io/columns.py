"""Which columns of a table hold its texts, and which text a row has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inbedder.errors import InputError, shown, shown_names

LINE_COLUMN = "text"
"""The column that is the texts' without being asked for, and that of plain lines."""
GUESSED_FROM = 1000
"""Rows that are looked at to find the column of the texts."""
EMPTY = ("is empty (NaN)", "is empty")
"""Why an empty cell holds no text."""


def columns_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Collect the names of all columns, each once, in the order in which they appear; rows may differ in their columns."""
    return list(dict.fromkeys(str(name) for record in records for name in record))


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, str | None]:
    """The text of a row.

    Args:
        record: The row.
        columns: The columns of the texts; the filled cells of several are joined by line breaks.

    Returns:
        The text, and None or why the row has none.
    """
    reasons = {column: why_no_text(record.get(column)) for column in columns}
    filled = [column for column in columns if reasons[column] not in EMPTY]
    wrong = [column for column in filled or columns if reasons[column] is not None]
    if wrong:
        return "", f"column {shown(wrong[0])} {reasons[wrong[0]]}."
    return "\n".join(str(record[column]) for column in filled), None


def why_no_text(value: Any) -> str | None:
    """Why a value is no text that can be embedded, or None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return EMPTY[0]
    if isinstance(value, str):
        return None if value.strip() else EMPTY[1]
    return f"is {shown(value)}, not text"


def text_columns_of(records: Sequence[Mapping[str, Any]], wanted: str | Sequence[str] | None) -> list[str]:
    """The columns of the texts.

    Args:
        records: The first rows at least.
        wanted: The column or columns asked for; None takes the one called "text" (whatever its case), or else the only one that
            contains text, if no other is empty.

    Returns:
        At least one name.

    Raises:
        InputError: When a column is not there, or which one is meant cannot be told.
    """
    columns = columns_of(records)
    asked = [wanted] if isinstance(wanted, str) else list(dict.fromkeys(wanted or ()))
    for name in asked:
        if name not in columns:
            raise InputError(f"No column {shown(name)}. The columns are: {shown_names(columns)}. Name one with --text-column.")
    called = sorted((name for name in columns if name.strip().lower() == LINE_COLUMN), key=lambda name: name != LINE_COLUMN)
    return asked or called[:1] or [_guessed_column(records, columns)]


def _guessed_column(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    filled = {name: _filled(records, name) for name in columns}
    wordy = [name for name in columns if _mostly(filled[name], lambda value: any(letter.isalpha() for letter in value))]
    if len(wordy) > 1:
        several = [name for name in wordy if _mostly(filled[name], lambda value: " " in value.strip())]
        wordy = several if len(several) == 1 else wordy
    empty = [name for name in columns if name.strip() and not filled[name]]
    if len(wordy) == 1 and not empty:
        return wordy[0]
    if len(wordy) == 1:  # what is filled may be a label of the texts that are missing
        found = f"only {shown(wordy[0])} holds text, but the texts may belong to an empty column ({shown_names(empty)})"
    else:
        found = "several columns hold text" if wordy else "no column holds text"
    raise InputError(
        f"{found[0].upper()}{found[1:]}; the columns are: {shown_names(columns)}. "
        "Name one with --text-column, or several by repeating it."
    )


def _filled(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """What the first rows hold in a column."""
    values = [record.get(name) for record in records[:GUESSED_FROM]]
    return [value for value in values if why_no_text(value) not in EMPTY]


def _mostly(values: Sequence[Any], holds: Callable[[str], bool]) -> bool:
    return sum(isinstance(value, str) and holds(value) for value in values) > 0.5 * len(values)
