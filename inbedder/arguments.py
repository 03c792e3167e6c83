"""Checks of arguments, before a model runs: a value that has no single meaning is rejected.

numpy is imported on use, because ``inbedder --help`` reads this module.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from inbedder.errors import InputError, format_value
from inbedder.runtime.user_paths import expand_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SEED = 2**32 - 1
"""The largest seed of numpy and scikit-learn."""
ROWS_PER_BLOCK = 8192
"""Rows that are checked for NaN in one pass."""


def check_integer(name: str, value: Any, minimum: int | None = None, maximum: int | None = None) -> int:
    """Check an integer of Python or numpy.

    Args:
        name: The argument's name, for the message.
        value: Its value.
        minimum: The smallest value allowed; None for no bound.
        maximum: The largest value allowed; None for no bound.

    Returns:
        The value as an ``int``.

    Raises:
        InputError: If the value is not an integer (True, 1.5 and "3" are not) or out of range.
    """
    import numpy as np

    message = f"{name} must be a whole number{_describe_range(minimum, maximum)}, not {value!r}."
    if isinstance(value, (bool, np.bool_)):
        raise InputError(message)
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(message) from None
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise InputError(message)
    return number


def check_seed(name: str, value: Any) -> int:
    """Check a seed: an integer from 0 to 2**32 - 1."""
    return check_integer(name, value, 0, MAX_SEED)


def check_finite_number(name: str, value: Any) -> float:
    """Check a number that must be neither infinite nor NaN.

    Args:
        name: The argument's name, for the message.
        value: Its value.

    Returns:
        The value as a ``float``.

    Raises:
        InputError: If the value is not a finite number.
    """
    import numpy as np

    try:
        number = math.nan if isinstance(value, (bool, np.bool_, str)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    return number


def check_positive_integer(name: str, value: Any) -> int | None:
    """Check an integer of at least 1, or None."""
    return None if value is None else check_integer(name, value, 1)


def check_temperature(name: str, value: Any) -> float:
    """Check a sampling temperature: a finite number of at least 0."""
    number = check_finite_number(name, value)
    if number < 0:
        raise InputError(f"{name} must be at least 0, not {number}.")
    return number


def check_top_p(name: str, value: Any) -> float:
    """Check a probability mass: a number in (0, 1]."""
    number = check_finite_number(name, value)
    if not 0 < number <= 1:
        raise InputError(f"{name} must be above 0 and at most 1, not {number}.")
    return number


def check_probability(name: str, value: Any) -> float | None:
    """Check a probability: a number from 0 to 1, or None."""
    if value is None:
        return None
    number = check_finite_number(name, value)
    if not 0 <= number <= 1:
        raise InputError(f"{name} must be from 0 to 1, not {number}.")
    return number


def check_string(name: str, value: Any) -> Any:
    """Check a string or None."""
    if not isinstance(value, str | None):
        raise InputError(f"{name} must be a string or None, not {format_value(value)}.")
    return value


def check_device(name: str, value: Any) -> str | None:
    """Check a device, and return its name: a string, a ``torch.device`` or None."""
    return check_string(name, str(value) if type(value).__name__ == "device" else value)  # type: ignore[no-any-return]


def check_path(name: str, value: Any) -> Any:
    """Check a name or a path, and return it as a string with ``~`` expanded; None stays None."""
    try:
        return None if value is None else expand_name(value)
    except TypeError:
        raise InputError(f"{name} must be a name or a path, not {format_value(value)}.") from None


def check_bool(name: str, value: Any) -> bool:
    """Check True or False; 1 and "yes" are neither."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {format_value(value)}.")
    return value


def check_optional_bool(name: str, value: Any) -> bool | None:
    """Check True, False or None."""
    return None if value is None else check_bool(name, value)


def check_list(name: str, values: Any) -> list[Any]:
    """Convert a sequence to a list: a list, a tuple, an array, an iterator, or a column of pandas or Arrow.

    Args:
        name: The argument's name, for the message.
        values: The sequence.

    Returns:
        A list of its entries. Entries of Arrow become Python objects.

    Raises:
        InputError: If ``values`` is a single value, has no order (a set), or holds several columns (a table, a mapping).
    """
    if isinstance(values, (str, bytes)) or values is None:
        raise InputError(f"{name} must be a list, not {format_value(values)}. Put it in a list: [...].")
    if has_columns(values):
        columns = [str(column) for column in getattr(values, "column_names", None) or getattr(values, "columns", values)]
        raise InputError(f"{name} is a {type(values).__name__} of {format_value(columns)}. Pass one of its columns.")
    if isinstance(values, Set):
        raise InputError(f"{name} is a {type(values).__name__}, which has no order. Pass a list.")
    if getattr(values, "ndim", 1) != 1:
        raise InputError(f"{name} has {values.ndim} dimensions. Pass one of its columns.")
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    if not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list, not {format_value(values)} ({type(values).__name__}).")
    return list(values)


def reject_pairs(texts: list[Any]) -> list[Any]:
    """Return the texts unchanged; if the first is a pair [instruction, text], as INSTRUCTOR takes, name the call for pairs."""
    if texts and isinstance(texts[0], (list, tuple)) and [type(value) for value in texts[0]] == [str, str]:
        raise InputError(
            f"texts: entry 0 is a pair, {format_value(texts[0])}. Pass texts and instructions as two arguments: "
            "model.encode([text for _, text in pairs], [instruction for instruction, _ in pairs])."
        )
    return texts


def has_columns(values: Any) -> bool:
    """Return whether a value holds several columns: a mapping, or a table of pandas, polars or Arrow."""
    return isinstance(values, Mapping) or hasattr(values, "columns") or hasattr(values, "column_names")


def check_columns(name: str, columns: Any) -> dict[str, list[Any]]:
    """Convert columns to lists by name.

    Args:
        name: The argument's name, for the message.
        columns: A mapping of names to sequences, or a table of pandas, polars or Arrow; None for no column.

    Returns:
        The values of each column.

    Raises:
        InputError: If ``columns`` is no mapping or table, or a column is not a sequence.
    """
    if columns is None:
        return {}
    if not has_columns(columns):
        kind = type(columns).__name__
        raise InputError(f"{name} must be a mapping of names to values, or a table, not {format_value(columns)} ({kind}).")
    names = getattr(columns, "column_names", getattr(columns, "columns", columns))
    return {str(column): check_list(str(column), columns[column]) for column in names}


def check_vectors(name: str, values: Any, texts: Sequence[str]) -> NDArray[Any]:
    """Check vectors that the caller passes instead of having them computed.

    Args:
        name: The argument's name, for the message.
        values: An array, or anything that numpy converts to one; integers and half precision become float32.
        texts: The texts of the vectors.

    Returns:
        The vectors, float32 or float64, shape (len(texts), d), as the same object if the dtype allows.

    Raises:
        InputError: If ``values`` is not numeric, is uint8, contains NaN or infinite numbers, has another number of rows, or has
            a zero row for a text that is not blank.
    """
    import numpy as np

    from inbedder.vectors.vectors import MIN_NORM, as_float_vectors

    try:
        vectors: NDArray[Any] = np.asanyarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        raise InputError(f"{name} must be an array of numbers, one row per text.") from None
    if vectors.dtype.kind not in "biuf":
        raise InputError(f"{name} must be an array of numbers, one row per text.")
    if vectors.ndim != 2 or len(vectors) != len(texts):
        shape = f"({len(texts)}, d)"
        raise InputError(f"{len(texts)} texts but {name} of shape {vectors.shape}: pass one vector per text, shape {shape}.")
    vectors = as_float_vectors(vectors)
    blocks = (vectors[start : start + ROWS_PER_BLOCK] for start in range(0, len(vectors), ROWS_PER_BLOCK))
    lengths = np.concatenate([np.zeros(0), *(np.linalg.norm(block, axis=1) for block in blocks)])
    if len(bad_rows := np.flatnonzero(~np.isfinite(lengths))):
        raise InputError(
            f"{name}: {len(bad_rows)} rows contain NaN or infinite numbers, or numbers too large to square (first: row "
            f"{bad_rows[0]}). Embed these texts again."
        )
    zero_rows = [row for row in np.flatnonzero(lengths < MIN_NORM).tolist() if not is_blank_text(texts[row])]
    if zero_rows:
        raise InputError(
            f"{name}: {len(zero_rows)} rows are zero, though their texts are not blank (first: row {zero_rows[0]}, "
            f"{format_value(texts[zero_rows[0]])}). A zero vector has no direction: embed these texts again, or leave them out."
        )
    return vectors


def is_blank_text(text: str) -> bool:
    """Return whether a text has only white space, control characters and characters without width."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def _describe_range(minimum: int | None, maximum: int | None) -> str:
    if maximum is not None:
        return f" from {minimum} to {maximum}"
    return "" if minimum is None else f" of at least {minimum}"
