"""Conversions between rows and vectors and their Arrow arrays and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inbedder.search.index_rows import EARLIER, GENERIC, ID, TEXT, Rows, to_typed_array
from inbedder.vectors.vectors import Vectors


def build_schema(rows: Rows, dimension: int, earlier_dimension: int = 0) -> Any:
    """Build the schema of a new table.

    Args:
        rows: The rows that the table will hold.
        dimension: Length of its generic vectors.
        earlier_dimension: Length of the vectors of an earlier layer, stored in half precision; 0 for none.

    Returns:
        A pyarrow schema.
    """
    import pyarrow as pa

    fields = [pa.field(ID, pa.string(), nullable=False), pa.field(TEXT, pa.string(), nullable=False)]
    fields += [pa.field(name, to_typed_array(values, name=name).type) for name, values in rows.columns.items()]
    fields.append(pa.field(GENERIC, pa.list_(pa.float32(), dimension)))
    return pa.schema([*fields, *([pa.field(EARLIER, pa.list_(pa.float16(), earlier_dimension))] if earlier_dimension else [])])


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


def to_list_array(vectors: Vectors, dtype: type[np.floating[Any]] = np.float32) -> Any:
    """Convert vectors, shape (n, d), to a pyarrow array of n fixed-size lists."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(vectors, dtype=dtype).ravel(), vectors.shape[1])


def to_matrix(column: Any) -> Vectors:
    """Convert a pyarrow column of n fixed-size lists without nulls to an array, float32, shape (n, d)."""
    dimension = column.type.list_size
    chunks = [np.asarray(chunk.flatten(), dtype=np.float32) for chunk in column.chunks]
    return np.concatenate([*chunks, np.empty(0, dtype=np.float32)]).reshape(-1, dimension)
