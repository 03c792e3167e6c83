"""Values of table cells: which are missing, and how values become text and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def is_missing(value: Any) -> bool:
    """Return whether a cell holds no value: None, NaN in any number type, or pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    is_unequal = value != value
    return getattr(is_unequal, "ndim", 0) == 0 and bool(is_unequal)


def is_blank(value: Any) -> bool:
    """Return whether a cell is missing or holds only white space."""
    return is_missing(value) or not str(value).strip()


def to_text(value: Any) -> str:
    """Convert a value to text: bytes as UTF-8 with escapes of others, lists and dicts as JSON, anything else by ``str``."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, (dict, list, tuple)):
        return dump_json(value, ensure_ascii=False)
    return str(value)


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON's types: None if it is missing or infinite, text for types that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(name): to_json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if is_missing(value) or (isinstance(value, float) and math.isinf(value)):
        return None
    return value if isinstance(value, (str, bool, int, float)) else to_text(value)


def dump_json(value: Any, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """Serialize a value as JSON of RFC 8259, converted by ``to_json_value``."""
    return json.dumps(to_json_value(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)
