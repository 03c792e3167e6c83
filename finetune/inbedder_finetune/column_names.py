"""Which columns of a table of questions hold the text, the question and the answer, by the names that such tables have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ALSO_CALLED = {
    "input": ("context", "passage", "paragraph", "text", "document", "article"),
    "instruction": ("question", "query"),
    "output": ("answer", "answers", "response"),
}
"""Our name of a column -> other names of it, the first that a row has counts."""


def column_of(key: str, fields: Mapping[str, str], columns: Iterable[str]) -> str:
    """The column that holds one part of a question-answer row.

    Args:
        key: "input", "instruction" or "output".
        fields: Names that the recipe gives.
        columns: Columns of the row.

    Returns:
        What the recipe says, else the part's own name, else (whatever its case) another name of ``ALSO_CALLED``; the part's own
        name where there is none of them.
    """
    if key in fields:
        return fields[key]
    there = {name.strip().lower(): name for name in reversed([str(column) for column in columns])}
    return next((there[name] for name in (key, *ALSO_CALLED[key]) if name in there), key)


def first_answer(value: Any) -> Any:
    """The answer of a cell that may hold several: the first of a list, or of SQuAD's table of texts and their places."""
    if isinstance(value, Mapping) and "text" in value:
        value = value["text"]
    return value[0] if isinstance(value, (list, tuple)) and value else value
