"""The text columns of a table, and the text of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.cell_values import is_missing

Record = dict[str, Any]
"""A row: values by column name."""
LINE_COLUMN = "text"
"""The default text column, and the column of plain lines."""
MAX_INSPECTED_ROWS = 1000
"""Number of rows from which the text column is guessed."""
EMPTY_REASONS = ("is empty (NaN)", "is empty")
"""Why an empty cell contains no text."""


def list_columns(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the names of all columns, in order of first appearance; rows may have different columns."""
    return list(dict.fromkeys(str(name) for record in records for name in record))


def read_text(record: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, str | None]:
    """Read a row's text, its non-empty text columns joined by line breaks, and None or the reason why it has none."""
    reasons = {column: explain_missing_text(record.get(column)) for column in columns}
    filled = [column for column in columns if reasons[column] not in EMPTY_REASONS]
    bad_columns = [column for column in filled or columns if reasons[column] is not None]
    if bad_columns:
        return "", f"column {format_value(bad_columns[0])} {reasons[bad_columns[0]]}."
    return "\n".join(str(record[column]) for column in filled), None


def explain_missing_text(value: Any) -> str | None:
    """Explain why a value is not a text that can be embedded; None if it is one."""
    if is_missing(value):
        return EMPTY_REASONS[0]
    if isinstance(value, str):
        return None if value.strip() else EMPTY_REASONS[1]
    return f"is {format_value(value)}, not text"


def find_text_columns(records: Sequence[Mapping[str, Any]], requested: str | Sequence[str] | None) -> list[str]:
    """Find the text columns of a table.

    Args:
        records: At least the first rows.
        requested: The requested column or columns; None takes the one named "text" (in any case), or else the only column that
            contains text, if no other column is empty.

    Returns:
        At least one name.

    Raises:
        InputError: If a column does not exist, or the text column is ambiguous.
    """
    columns = list_columns(records)
    names = [requested] if isinstance(requested, str) else list(dict.fromkeys(requested or ()))
    for name in names:
        if name not in columns:
            raise InputError(
                f"No column {format_value(name)}. The columns are: {format_names(columns)}. Choose one with --text-column."
            )
    matches = sorted((name for name in columns if name.strip().lower() == LINE_COLUMN), key=lambda name: name != LINE_COLUMN)
    return names or matches[:1] or [_guess_column(records, columns)]


def _guess_column(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return the only column that contains text, or raise InputError."""
    values = {name: _select_filled(records, name) for name in columns}
    text_columns = [name for name in columns if _is_majority(values[name], lambda value: any(map(str.isalpha, value)))]
    if len(text_columns) > 1:
        with_spaces = [name for name in text_columns if _is_majority(values[name], lambda value: " " in value.strip())]
        text_columns = with_spaces if len(with_spaces) == 1 else text_columns
    empty_columns = [name for name in columns if name.strip() and not values[name]]
    if len(text_columns) == 1 and not empty_columns:
        return text_columns[0]
    if len(text_columns) == 1:  # the text column may be a label of texts that are missing
        reason = (
            f"Only {format_value(text_columns[0])} contains text, but the texts may belong in an empty column "
            f"({format_names(empty_columns)})"
        )
    else:
        reason = "Several columns contain text" if text_columns else "No column contains text"
    raise InputError(
        f"{reason}; the columns are: {format_names(columns)}. Choose one with --text-column, or several by repeating the option."
    )


def _select_filled(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Select the non-empty cells of a column's first rows."""
    values = [record.get(name) for record in records[:MAX_INSPECTED_ROWS]]
    return [value for value in values if explain_missing_text(value) not in EMPTY_REASONS]


def _is_majority(values: Sequence[Any], condition: Callable[[str], bool]) -> bool:
    """Return whether more than half of the values are strings that meet a condition."""
    return sum(isinstance(value, str) and condition(value) for value in values) > 0.5 * len(values)
