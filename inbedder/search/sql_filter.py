"""Checks of SQL filters: the engine itself ignores whatever follows a filter's first expression."""

from __future__ import annotations

import re

from inbedder.errors import InputError, format_names, format_value
from inbedder.search.lance_engine import clean_engine_message, is_engine_error
from inbedder.search.storage import Storage

PARSER_ERROR = "sql parser error"
"""Part of the engine's messages about syntax; other messages mean that the syntax is right."""


def check_filter(storage: Storage, where: str) -> None:
    """Reject a filter that is not one whole SQL expression on the columns.

    The engine reads an expression to its end only if something must follow it. Whatever follows the first expression of a filter
    is a syntax error inside brackets or inside parentheses, for no word closes both.

    Args:
        storage: The index.
        where: The filter.

    Raises:
        InputError: If the filter cannot be parsed to its end, or names an unknown column.
    """
    if not isinstance(where, str):
        raise InputError(f'The filter must be a string such as "stars < 3", not {format_value(where)}.')
    if (reason := _find_error(storage, where)) is None:
        reason = _find_error(storage, f"({where}\n)") or _find_error(storage, f"[{where}\n]", PARSER_ERROR)
        if reason is None:
            return
        word = re.search(r"found: (.*?)(?: at Line.*)?\)*$", reason, re.DOTALL)
        reason = f"it goes on after its first condition{f', with {format_value(word[1])}' if word else ''}; use AND or OR"
    reason = reason.partition(" Valid fields")[0][:200]
    names = format_names(storage.columns)
    raise InputError(f"The filter {format_value(where)} cannot be used ({reason}). The columns are: {names}.")


def _find_error(storage: Storage, where: str, kind: str = "") -> str | None:
    """Plan a query with a filter, without running it; return the engine's message if it fails with an error of some kind."""
    try:
        storage.table.search().where(where).limit(None).explain_plan()
    except Exception as error:
        if not is_engine_error(error):
            raise
        return clean_engine_message(error) if kind in str(error) else None
    return None
