"""The columns of a question-answer table that hold the text, the question and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

COLUMN_ALIASES = {
    "input": ("context", "passage", "paragraph", "text", "document", "article"),
    "instruction": ("question", "query"),
    "output": ("answer", "answers", "response"),
}
"""Column name of recipes -> other names of the same column, in order of preference."""


def find_column(key: str, fields: Mapping[Any, str], columns: Iterable[str]) -> str:
    """Find the column that holds one part of a question-answer row.

    Args:
        key: "input", "instruction" or "output".
        fields: Key -> column name, as the recipe gives it.
        columns: Column names of the row.

    Returns:
        The recipe's name for the key. Without one, the column called ``key`` or the first of its ``COLUMN_ALIASES``, in any case
        of letters. ``key`` itself when no column matches.
    """
    if key in fields:
        return fields[key]
    column_by_lower_name = {name.strip().lower(): name for name in reversed([str(column) for column in columns])}
    names = (key, *COLUMN_ALIASES[key])
    return next((column_by_lower_name[name] for name in names if name in column_by_lower_name), key)


def get_first_answer(value: Any) -> Any:
    """Get the first answer of a cell that may hold a list of answers, or SQuAD's table of answer texts and positions."""
    if isinstance(value, Mapping) and "text" in value:
        value = value["text"]
    return value[0] if isinstance(value, (list, tuple)) and value else value
