"""Reading the rows of .parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inbedder.errors import InputError, format_value
from inbedder.io.columns import Record
from inbedder.io.headers import check_unique
from inbedder.io.outputs import import_parquet

BATCH_ROWS = 1024
"""Number of rows that are in memory at once."""
CONVERSION_ERRORS = (OverflowError, ValueError, KeyError)
"""What pyarrow raises for a value that Python cannot hold: a time after the year 9999, or in an unknown time zone."""


def read_parquet(path: str, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Record]]:
    """Read a .parquet file row by row.

    Args:
        path: The file.
        columns: The columns to read; None reads all, as does a column that the file lacks.

    Yields:
        The row's number, from 1, and the row. A time that Python cannot hold is read as its text.

    Raises:
        InputError: When the file is not a .parquet file, is damaged, or contains text that is not UTF-8.
    """
    pyarrow, parquet = import_parquet()
    number = 0
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            check_unique(names, format_value(path))
            selected = columns if columns is not None and set(columns) <= set(names) else None
            for batch in file.iter_batches(BATCH_ROWS, columns=selected):
                lists = [_convert_column(pyarrow, path, *pair) for pair in zip(batch.schema.names, batch.columns, strict=True)]
                for cells in zip(*lists, strict=True):
                    number += 1
                    yield number, dict(zip(batch.schema.names, cells, strict=True))
    except pyarrow.ArrowMemoryError:
        raise
    except pyarrow.ArrowException as error:
        raise InputError(f"{format_value(path)} is not a parquet file ({error}).") from error


def _convert_column(pyarrow: Any, path: str, name: str, column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError as error:
        place = f"{format_value(path)}: column {format_value(name)}"
        raise InputError(f"{place} contains text that is not UTF-8. Write the file again with valid text.") from error
    except CONVERSION_ERRORS:
        return [_convert_scalar(pyarrow, scalar) for scalar in column]


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
