"""The rows that may answer a query, and their order.

The candidates are the rows nearest to the query by generic vectors, optionally fused with BM25 by reciprocal rank. Each candidate
gets the cosine of its vector and the query's under the instruction, mixed with the cosine of the generic vectors::

    score = (1 - w) * instructed + w * generic

``auto`` gives more weight to the scores that separate the candidates further: w = s_g / (s_i + s_g), with s the standard
deviation of the generic and of the instructed scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value
from inbedder.search.arrow import to_matrix
from inbedder.search.index_rows import GENERIC, TEXT
from inbedder.search.lance_engine import import_lancedb, translate_engine_errors
from inbedder.search.storage import Storage
from inbedder.vectors.vectors import Vectors

REFINE_FACTOR = 2
"""Multiple of the candidates whose exact distance an approximate index computes."""
NUM_PROBES = 40
"""Partitions of an approximate index that a query searches."""


def find_candidates(
    storage: Storage, vector: Vectors, query: str | None, count: int, where: str | None, columns: Sequence[str]
) -> tuple[dict[str, Any], NDArray[np.floating[Any]]]:
    """Find the rows to rerank.

    Args:
        storage: The index.
        vector: The query's generic vector of length 1, shape (k,).
        query: Its text, to fuse the rows with BM25's; None leaves BM25 out.
        count: Maximum number of rows.
        where: An SQL filter on the columns.
        columns: The columns to read.

    Returns:
        At most ``count`` values per column, the best row first, with ``_relevance_score`` among the columns where BM25 takes
        part; and the cosines of the rows' generic vectors and the query's.

    Raises:
        InputError: If the filter fails on a row, or the index is damaged.
    """
    selection = [*columns, *([GENERIC] if query else [])]

    def run(search: Any, score_column: str) -> Any:
        search = search.select([*selection, score_column]).with_row_id(query is not None).limit(count)
        return (search.where(where) if where is not None else search).to_arrow()

    try:
        with translate_engine_errors(storage.folder):
            nearest = storage.table.search(vector, vector_column_name=GENERIC).distance_type("cosine")
            rows = run(nearest.nprobes(NUM_PROBES).refine_factor(REFINE_FACTOR), "_distance")
            if query is not None:
                words = query.strip().strip('"')  # the index of words has no positions, which a phrase in quotes needs
                by_words = run(storage.table.search(words, query_type="fts", fts_columns=TEXT), "_score")
                rows = import_lancedb().rerankers.RRFReranker().rerank_hybrid(query, rows, by_words).slice(0, count)
    except InputError as error:
        if where is None:
            raise
        raise InputError(f"The filter {format_value(where)} fails on a row, or the index is damaged. {error}") from error
    generic = 1 - np.asarray(rows["_distance"]) if query is None else to_matrix(rows[GENERIC]) @ vector
    return {name: rows[name] for name in [*columns, "_relevance_score"] if name in rows.column_names}, generic


def mix_scores(
    instructed: NDArray[np.floating[Any]], generic: NDArray[np.floating[Any]], weight: float | str
) -> tuple[NDArray[np.floating[Any]], float]:
    """Mix instructed and generic scores.

    Args:
        instructed: Cosines under the instruction, shape (n,).
        generic: Cosines of the generic vectors, shape (n,).
        weight: Weight of the generic score, from 0 to 1, or "auto".

    Returns:
        The weighted mean, shape (n,), and the weight.

    Raises:
        InputError: If the weight is out of range.
    """
    if weight == "auto":
        instructed_spread, generic_spread = float(instructed.std()), float(generic.std())
        total = instructed_spread + generic_spread
        weight = generic_spread / total if total > 0 else 0.0
    if isinstance(weight, str) or not 0 <= weight <= 1:
        raise InputError(f'weight must be "auto" or a number from 0 to 1, not {format_value(weight)}.')
    return (1 - weight) * instructed + weight * generic, float(weight)
