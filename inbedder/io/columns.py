"""Which columns of a table hold its texts, and which text a row has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inbedder.errors import InputError, format_names, format_value

LINE_COLUMN = "text"
"""The column that is the texts' without being asked for, and that of plain lines."""
MAX_INSPECTED_ROWS = 1000
"""Rows that are looked at to find the column of the texts."""
EMPTY_REASONS = ("is empty (NaN)", "is empty")
"""Why an empty cell holds no text."""


def list_columns(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Collect the names of all columns, each once, in the order in which they appear; rows may differ in their columns."""
    return list(dict.fromkeys(str(name) for record in records for name in record))


def read_text(record: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, str | None]:
    """The text of a row.

    Args:
        record: The row.
        columns: The columns of the texts; the filled cells of several are joined by line breaks.

    Returns:
        The text, and None or why the row has none.
    """
    reasons = {column: explain_missing_text(record.get(column)) for column in columns}
    filled = [column for column in columns if reasons[column] not in EMPTY_REASONS]
    wrong = [column for column in filled or columns if reasons[column] is not None]
    if wrong:
        return "", f"column {format_value(wrong[0])} {reasons[wrong[0]]}."
    return "\n".join(str(record[column]) for column in filled), None


def explain_missing_text(value: Any) -> str | None:
    """Why a value is no text that can be embedded, or None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return EMPTY_REASONS[0]
    if isinstance(value, str):
        return None if value.strip() else EMPTY_REASONS[1]
    return f"is {format_value(value)}, not text"


def find_text_columns(records: Sequence[Mapping[str, Any]], wanted: str | Sequence[str] | None) -> list[str]:
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
    columns = list_columns(records)
    asked = [wanted] if isinstance(wanted, str) else list(dict.fromkeys(wanted or ()))
    for name in asked:
        if name not in columns:
            raise InputError(
                f"No column {format_value(name)}. The columns are: {format_names(columns)}. Name one with --text-column."
            )
    called = sorted((name for name in columns if name.strip().lower() == LINE_COLUMN), key=lambda name: name != LINE_COLUMN)
    return asked or called[:1] or [_guess_column(records, columns)]


def _guess_column(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    filled = {name: _select_filled(records, name) for name in columns}
    wordy = [name for name in columns if _is_majority(filled[name], lambda value: any(letter.isalpha() for letter in value))]
    if len(wordy) > 1:
        several = [name for name in wordy if _is_majority(filled[name], lambda value: " " in value.strip())]
        wordy = several if len(several) == 1 else wordy
    empty = [name for name in columns if name.strip() and not filled[name]]
    if len(wordy) == 1 and not empty:
        return wordy[0]
    if len(wordy) == 1:  # what is filled may be a label of the texts that are missing
        found = f"only {format_value(wordy[0])} holds text, but the texts may belong to an empty column ({format_names(empty)})"
    else:
        found = "several columns hold text" if wordy else "no column holds text"
    raise InputError(
        f"{found[0].upper()}{found[1:]}; the columns are: {format_names(columns)}. "
        "Name one with --text-column, or several by repeating it."
    )


def _select_filled(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """What the first rows hold in a column."""
    values = [record.get(name) for record in records[:MAX_INSPECTED_ROWS]]
    return [value for value in values if explain_missing_text(value) not in EMPTY_REASONS]


def _is_majority(values: Sequence[Any], holds: Callable[[str], bool]) -> bool:
    return sum(isinstance(value, str) and holds(value) for value in values) > 0.5 * len(values)
