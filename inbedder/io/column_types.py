"""Types of columns, where a file's type or a text's spelling leaves no doubt: numbers, and kinds of dates."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from inbedder.io.cell_values import is_missing

MAX_INT64 = 2**63 - 1
MAX_PLAIN_NUMBER = 1e16
"""Whole numbers below it are written without an exponent."""


def parse_numbers(texts: Sequence[str]) -> list[int] | list[float] | None:
    """Read texts as numbers, if writing the numbers again would give the same texts.

    Args:
        texts: At least one text.

    Returns:
        Whole numbers of 64 bits, or decimals; None if a text is not spelled so: a code with leading zeros, a version "1.10", or a
        long id among decimals.

    Example:
        >>> from inbedder.io.column_types import parse_numbers
        >>> parse_numbers(["4", "12"]), parse_numbers(["4", "12.5"])
        ([4, 12], [4.0, 12.5])
        >>> parse_numbers(["1.10", "1.9"]), parse_numbers(["007"])
        (None, None)
    """
    return _parse_spelled(texts, int, str) or _parse_spelled(texts, float, repr) or _parse_spelled(texts, float, format_number)


def _parse_spelled(texts: Sequence[str], parse: Callable[[str], Any], write: Callable[[Any], str]) -> list[Any] | None:
    numbers = []
    for text in texts:
        try:
            number = parse(text)
        except ValueError:
            return None
        if write(number) != text or not (math.isfinite(number) and abs(number) <= (MAX_INT64 if parse is int else math.inf)):
            return None
        numbers.append(number)
    return numbers


def format_number(number: float | np.floating[Any]) -> str:
    """Format a number with the digits that identify it among those of its type; a whole one has no decimal point."""
    if math.isfinite(number) and number == int(number) and abs(float(number)) < MAX_PLAIN_NUMBER:
        return str(int(number))
    return str(number) if isinstance(number, np.floating) else repr(number)


def shorten_digits(value: Any, dtype: type[np.floating[Any]]) -> Any:
    """Convert a number of few bits, or a list, to the Python float of its own digits: 4.1 in float32 stays 4.1."""
    if isinstance(value, list):
        return [shorten_digits(item, dtype) for item in value]
    return float(str(dtype(value))) if isinstance(value, float) else value


def has_one_kind(values: Iterable[Any]) -> bool:
    """Return whether the dates among values are all of one kind: dates, times without a zone, or times with one."""
    kinds = set()
    for value in values:
        if isinstance(value, datetime.date) and not is_missing(value):
            kinds.add((type(value) is datetime.date, getattr(value, "tzinfo", None) is None))
    return len(kinds) <= 1
