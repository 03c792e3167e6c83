"""What an index holds, and whether it is whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from inbedder.errors import shown_names
from inbedder.search.index_rows import GENERIC, ID, INSTRUCTED, TEXT
from inbedder.search.storage import Storage

ROWS = 4096
"""Rows that are checked together."""


def verify(storage: Storage) -> list[str]:
    """Read and check a whole index; return one line per damage."""
    wrong: list[str] = []
    if not storage.is_built:
        wrong.append(f"Its build did not finish; {len(storage):,} rows are committed. Build it again with the same table.")
    ids: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    try:
        for batch in storage.table.search().limit(None).to_batches(ROWS):
            ids.update(batch.column(ID).to_pylist())
            broken["empty texts"] += sum(not text for text in batch.column(TEXT).to_pylist())
            for field in batch.schema:
                if field.name == GENERIC or field.name.startswith(INSTRUCTED):
                    vectors = batch.column(field.name)
                    broken[f"rows without a vector in {field.name}"] += vectors.null_count if field.name == GENERIC else 0
                    numbers = np.asarray(vectors.drop_null().flatten())
                    sound = np.isfinite(numbers).reshape(-1, field.type.list_size).all(axis=1)
                    broken[f"vectors in {field.name} that are no numbers"] += int((~sound).sum())
    except (OSError, RuntimeError, ValueError) as error:
        wrong.append(f"It cannot be read to its end: {str(error)[:300]}")
        return wrong
    wrong += [f"{count:,} {what}." for what, count in broken.items() if count]
    twice = [name for name, count in ids.items() if count > 1]
    if twice:
        wrong.append(f"Ids that are there more than once: {shown_names(twice)}.")
    if sum(ids.values()) != len(storage):
        wrong.append(f"{len(storage):,} rows are counted and {sum(ids.values()):,} can be read.")
    return wrong


def info(storage: Storage) -> dict[str, Any]:
    """What an index holds.

    Args:
        storage: Its table.

    Returns:
        Facts, as json takes them.

    Raises:
        InputError: When its metadata cannot be read.
    """
    spec = storage.spec
    instructions = [
        {
            "instruction": facts["instruction"],
            "read": facts["read"],
            "missing": storage.table.count_rows(f"{name} IS NULL"),
        }
        for name, facts in storage.instructed.items()
    ]
    return {
        "rows": len(storage),
        "columns": storage.columns,
        "model": spec.model,
        "revision": spec.weights,
        "built": storage.is_built,
        "engine": storage.engine,
        "instructions": instructions,
        "versions": len(storage.table.list_versions()),
        "bytes": storage.size,
    }
