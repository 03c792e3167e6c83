"""A summary of an index's contents, and a check of its integrity."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from inbedder.errors import format_names
from inbedder.search.index_rows import EARLIER, GENERIC, ID, INSTRUCTED, TEXT
from inbedder.search.lance_engine import clean_engine_message, is_engine_error
from inbedder.search.storage import Storage

BATCH_ROWS = 4096
"""Rows that are checked together."""


def verify_index(storage: Storage) -> list[str]:
    """Read and check a whole index; return one line per problem."""
    problems: list[str] = []
    if not storage.is_built:
        problems.append(f"Its build did not finish; {len(storage):,} rows are committed. Build it again with the same table.")
    ids: Counter[str] = Counter()
    damage: Counter[str] = Counter()
    try:
        for batch in storage.table.search().limit(None).to_batches(BATCH_ROWS):
            ids.update(batch.column(ID).to_pylist())
            damage["empty texts"] += sum(not text for text in batch.column(TEXT).to_pylist())
            for field in batch.schema:
                if field.name in (GENERIC, EARLIER) or field.name.startswith(INSTRUCTED):
                    vectors = batch.column(field.name)
                    damage[f"rows without a vector in {field.name}"] += (
                        0 if field.name.startswith(INSTRUCTED) else vectors.null_count
                    )
                    numbers = np.asarray(vectors.drop_null().flatten())
                    is_finite = np.isfinite(numbers).reshape(-1, field.type.list_size).all(axis=1)
                    damage[f"vectors in {field.name} that are not finite"] += int((~is_finite).sum())
    except Exception as error:
        if not is_engine_error(error):
            raise
        problems.append(f"It cannot be read to its end: {clean_engine_message(error)}")
        return problems
    problems += [f"{count:,} {kind}." for kind, count in damage.items() if count]
    duplicates = [name for name, count in ids.items() if count > 1]
    if duplicates:
        problems.append(f"Ids that occur more than once: {format_names(duplicates)}.")
    if sum(ids.values()) != len(storage):
        problems.append(f"The table counts {len(storage):,} rows, but {sum(ids.values()):,} can be read.")
    return problems


def describe_index(storage: Storage) -> dict[str, Any]:
    """Describe an index.

    Args:
        storage: Its table.

    Returns:
        Rows, columns, model, engine and instructions, in types that json writes.

    Raises:
        InputError: If its metadata cannot be read.
    """
    spec = storage.spec
    instructions = [
        {
            "instruction": metadata["instruction"],
            "read": metadata["read"],
            "missing": storage.count_rows(f"{name} IS NULL"),
        }
        for name, metadata in storage.instructed.items()
    ]
    return {
        "rows": len(storage),
        "columns": storage.columns,
        "model": spec.model,
        "revision": spec.weights,
        "built": storage.is_built,
        "engine": storage.engine,
        "instructions": instructions,
        "versions": storage.count_versions(),
        "bytes": storage.size,
    }
