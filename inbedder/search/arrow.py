"""Conversions between rows and vectors and their Arrow arrays and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inbedder.search.index_rows import GENERIC, ID, TEXT, Rows, to_typed_array
from inbedder.vectors.vectors import Vectors


def build_schema(rows: Rows, dimension: int) -> Any:
    """Build the schema of a new table.

    Args:
        rows: The rows that the table will hold.
        dimension: Length of its generic vectors.

    Returns:
        A pyarrow schema.
    """
    import pyarrow as pa

    fields = [pa.field(ID, pa.string(), nullable=False), pa.field(TEXT, pa.string(), nullable=False)]
    fields += [pa.field(name, to_typed_array(values, name=name).type) for name, values in rows.columns.items()]
    return pa.schema([*fields, pa.field(GENERIC, pa.list_(pa.float32(), dimension))])


def build_table(columns: Mapping[str, Any], schema: Any) -> Any:
    """Build a table of rows to append or merge.

    Args:
        columns: Values by name.
        schema: The schema of the index's table; its metadata is left out.

    Returns:
        A pyarrow table.
    """
    import pyarrow as pa

    fields = [pa.field(field.name, field.type, field.nullable) for field in schema]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))


def to_list_array(vectors: Vectors) -> Any:
    """Convert vectors, float32, shape (n, d), to a pyarrow array of n fixed-size lists."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(vectors, dtype=np.float32).ravel(), vectors.shape[1])


def to_matrix(column: Any) -> Vectors:
    """Convert a pyarrow column of n fixed-size lists without nulls to an array, float32, shape (n, d)."""
    dimension = column.type.list_size
    chunks = [np.asarray(chunk.flatten(), dtype=np.float32) for chunk in column.chunks]
    return np.concatenate([*chunks, np.empty(0, dtype=np.float32)]).reshape(-1, dimension)
