"""Reading the rows of .parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from inbedder.errors import InputError, format_value
from inbedder.io.column_types import shorten_digits
from inbedder.io.columns import Record
from inbedder.io.headers import check_unique
from inbedder.io.outputs import import_parquet
from inbedder.io.text_lines import MAX_LINE_CHARACTERS

BATCH_ROWS = 1024
"""Number of rows that are in memory at once."""
CONVERSION_ERRORS = (OverflowError, ValueError, KeyError)
"""What pyarrow raises for a value that Python cannot hold: a time after the year 9999, or in an unknown time zone."""


def read_parquet(path: str, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Record]]:
    """Yield the number, from 1, and record of each row; reject damage, and text that is not UTF-8."""
    pyarrow, parquet = import_parquet()
    number = 0
    try:
        schema = parquet.read_schema(path)
        check_unique(schema.names, format_value(path))
        selected = columns if columns is not None and set(columns) <= set(schema.names) else None
        texts = [field.name for field in schema if _is_text(pyarrow.types, field.type)]
        # as dictionaries: a text that many rows share is in memory once
        with parquet.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=selected):
                lists = [_convert_column(pyarrow, path, *pair) for pair in zip(batch.schema.names, batch.columns, strict=True)]
                for cells in zip(*lists, strict=True):
                    number += 1
                    yield number, dict(zip(batch.schema.names, cells, strict=True))
    except pyarrow.ArrowMemoryError:
        raise
    except pyarrow.ArrowException as error:
        raise InputError(f"{format_value(path)} is not a parquet file ({error}).") from error


def _is_text(types: Any, arrow_type: Any) -> bool:
    return any(
        is_type(arrow_type)
        for is_type in (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    )


def _convert_column(pyarrow: Any, path: str, name: str, column: Any) -> list[Any]:
    try:
        if pyarrow.types.is_dictionary(column.type):
            indices = column.indices.drop_null().unique()
            shared = dict(
                zip(indices.to_pylist(), _convert_column(pyarrow, path, name, column.dictionary.take(indices)), strict=True)
            )
            return [shared.get(index) for index in column.indices.to_pylist()]
        if _is_text(pyarrow.types, column.type):
            _check_cells(pyarrow, path, name, column)
        values = list(column.to_pylist())
        dtype = _find_narrow_type(pyarrow.types, column.type)
        return values if dtype is None else [shorten_digits(value, dtype) for value in values]
    except UnicodeDecodeError as error:
        place = f"{format_value(path)}: column {format_value(name)}"
        raise InputError(f"{place} contains text that is not UTF-8. Write the file again with valid text.") from error
    except CONVERSION_ERRORS:
        return [_convert_scalar(pyarrow, scalar) for scalar in column]


def _check_cells(pyarrow: Any, path: str, name: str, column: Any) -> None:
    """Reject a cell that is longer than those of text files may be, before it becomes a Python value."""
    from pyarrow import compute

    if (compute.max(compute.binary_length(column)).as_py() or 0) > MAX_LINE_CHARACTERS:
        place = f"{format_value(path)}: column {format_value(name)}"
        raise InputError(f"{place} has a cell of more than {MAX_LINE_CHARACTERS:,} bytes. Split or remove it.")


def _find_narrow_type(types: Any, arrow_type: Any) -> Any:
    """Return numpy's type of numbers with fewer bits than Python's, also within lists; None for any other type."""
    while types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        arrow_type = arrow_type.value_type
    if types.is_float32(arrow_type):
        return np.float32
    return np.float16 if types.is_float16(arrow_type) else None


def _convert_scalar(pyarrow: Any, scalar: Any) -> Any:
    """Convert an Arrow value to a Python value, or to text if Python has no such value."""
    try:
        return scalar.as_py()
    except CONVERSION_ERRORS:
        pass
    if pyarrow.types.is_struct(scalar.type):
        return {name: _convert_scalar(pyarrow, scalar[name]) for name in scalar}
    if pyarrow.types.is_nested(scalar.type):
        return [_convert_scalar(pyarrow, item) for item in scalar.values]
    try:
        return scalar.cast(pyarrow.string()).as_py()
    except pyarrow.ArrowInvalid:
        if not pyarrow.types.is_timestamp(scalar.type):
            raise
        # this machine does not know the time zone
        return scalar.cast(pyarrow.timestamp(scalar.type.unit, "UTC")).cast(pyarrow.string()).as_py()
