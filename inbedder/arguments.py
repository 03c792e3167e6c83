"""What arguments may be: they are checked before a model runs, and only what has one meaning is taken."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError

MAX_SEED = 2**32 - 1
"""Of numpy and scikit-learn."""
ROWS_PER_BLOCK = 8192
"""Vectors that are checked at once."""


def check_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Take a whole number, of Python or numpy.

    Args:
        name: What the argument is called.
        value: What was given.
        least: The smallest that is allowed; None for any.
        most: The largest that is allowed; None for any.

    Returns:
        The number.

    Raises:
        InputError: When it is no whole number (True, 1.5 and "3" are none) or out of range.
    """
    wanted = f"{name} must be a whole number{_range(least, most)}, not {value!r}."
    if isinstance(value, (bool, np.bool_)):
        raise InputError(wanted)
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(wanted) from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise InputError(wanted)
    return number


def check_seed(value: Any) -> int:
    """Take a seed: a whole number from 0 to 2**32 - 1."""
    return check_integer("seed", value, 0, MAX_SEED)


def check_finite_number(name: str, value: Any) -> float:
    """Take a number that is neither infinite nor NaN.

    Args:
        name: What the argument is called.
        value: What was given.

    Returns:
        The number.

    Raises:
        InputError: When it is none.
    """
    try:
        number = math.nan if isinstance(value, (bool, np.bool_, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    return number


def check_list(name: str, values: Any) -> list[Any]:
    """Take a sequence of entries: a list, a tuple, an array, an iterator, a column of pandas or Arrow.

    Args:
        name: What the argument is called.
        values: What was given.

    Returns:
        A list of its entries, those of Arrow as Python's own.

    Raises:
        InputError: When it is a single value, has no order (a set), or holds several columns (a table, a mapping).
    """
    if isinstance(values, (str, bytes)) or values is None:
        raise InputError(f"{name} must be a list, not {_short(values)}. Put it in a list: [...].")
    if isinstance(values, Mapping) or hasattr(values, "columns") or hasattr(values, "column_names"):
        columns = [str(column) for column in getattr(values, "column_names", None) or getattr(values, "columns", values)]
        raise InputError(f"{name} is a {type(values).__name__} of {_short(columns)}. Give one column of it.")
    if isinstance(values, Set):
        raise InputError(f"{name} is a {type(values).__name__}, which has no order. Give a list.")
    if getattr(values, "ndim", 1) != 1:
        raise InputError(f"{name} has {values.ndim} dimensions. Give one column of it.")
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    if not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, not {_short(values)} ({type(values).__name__}).")
    return list(values)


def check_vectors(name: str, values: Any, count: int) -> NDArray[Any]:
    """Take vectors that are known already.

    Args:
        name: What the argument is called.
        values: An array, or what numpy makes one of.
        count: How many vectors there must be.

    Returns:
        The array itself where it is one, shape (count, d).

    Raises:
        InputError: When it holds other than numbers, NaN or infinite ones, or another number of rows.
    """
    try:
        vectors: NDArray[Any] = np.asanyarray(values)
        finite = all(
            np.isfinite(vectors[place : place + ROWS_PER_BLOCK]).all() for place in range(0, len(vectors), ROWS_PER_BLOCK)
        )
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers, one row per text.") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise InputError(f"{count} texts but {name} of shape {vectors.shape}: give one vector per text, shape ({count}, d).")
    if not finite:
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        raise InputError(f"{name}: {len(bad)} rows hold NaN or infinite numbers (first: row {bad[0]}). Embed these texts again.")
    return vectors


def _range(least: int | None, most: int | None) -> str:
    if most is not None:
        return f" from {least} to {most}"
    return "" if least is None else f" of at least {least}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
