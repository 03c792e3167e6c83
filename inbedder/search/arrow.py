"""Vectors and rows as arrow holds them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inbedder.search.index_rows import GENERIC, ID, TEXT, Rows, typed
from inbedder.vectors import Vectors


def schema_of(rows: Rows, width: int) -> Any:
    """The columns of a new table.

    Args:
        rows: What will stand in it.
        width: Length of its generic vectors.

    Returns:
        A pyarrow schema.
    """
    import pyarrow as pa

    fields = [pa.field(ID, pa.string(), nullable=False), pa.field(TEXT, pa.string(), nullable=False)]
    fields += [pa.field(name, typed(values, name=name).type) for name, values in rows.columns.items()]
    return pa.schema([*fields, pa.field(GENERIC, pa.list_(pa.float32(), width))])


def table_of(columns: Mapping[str, Any], schema: Any) -> Any:
    """Rows as the engine takes them.

    Args:
        columns: Values by name.
        schema: The table's, whose metadata are left out.

    Returns:
        A pyarrow table.
    """
    import pyarrow as pa

    fields = [pa.field(field.name, field.type, field.nullable) for field in schema]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))


def fixed(vectors: Vectors) -> Any:
    """Turn vectors, float32, shape (n, d), into a pyarrow array of n fixed-size lists."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(vectors, dtype=np.float32).ravel(), vectors.shape[1])


def matrix(column: Any) -> Vectors:
    """Turn a pyarrow column of n fixed-size lists without nulls into an array, float32, shape (n, d)."""
    width = column.type.list_size
    chunks = [np.asarray(chunk.flatten(), dtype=np.float32) for chunk in column.chunks]
    return np.concatenate([*chunks, np.empty(0, dtype=np.float32)]).reshape(-1, width)
