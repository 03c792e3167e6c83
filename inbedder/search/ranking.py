"""The rows that may answer a query, and their order.

Candidates are the rows nearest to the query by generic vectors, or by these and BM25 fused by reciprocal rank. Each gets the
cosine of its vector and the query's under the instruction, mixed with the cosine of the generic vectors::

    score = (1 - w) * instructed + w * generic

``auto`` gives more say to the scores that set the candidates further apart: w = s_g / (s_i + s_g), with s the standard deviation
of the generic and of the instructed scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, shown, shown_names
from inbedder.search.arrow import matrix
from inbedder.search.index_rows import GENERIC, TEXT
from inbedder.search.lance_engine import import_lancedb
from inbedder.search.storage import Storage
from inbedder.vectors import Vectors

REFINE = 2
"""For so many times the candidates an approximate index looks up the exact distance."""
PROBES = 40
"""Parts of an approximate index that are looked through."""


def candidates(
    storage: Storage, vector: Vectors, query: str | None, count: int, where: str | None, columns: Sequence[str]
) -> tuple[dict[str, Any], NDArray[np.floating[Any]]]:
    """The rows that are worth a second look.

    Args:
        storage: The index.
        vector: The query's generic vector of length 1, shape (k,).
        query: Its text where BM25 has a say, else None.
        count: How many rows.
        where: An SQL filter on the columns.
        columns: What is read of each.

    Returns:
        By column at most ``count`` values, the best row first, ``_relevance_score`` among them where BM25 had a say; and the
        cosines of their generic vectors and the query's.

    Raises:
        InputError: When the filter cannot be read.
    """
    read = [*columns, *([GENERIC] if query else [])]

    def run(search: Any, *also: str) -> Any:
        search = search.select([*read, *also]).with_row_id(query is not None).limit(count)
        return (search.where(where) if where is not None else search).to_arrow()

    nearest = storage.table.search(vector, vector_column_name=GENERIC).distance_type("cosine")
    try:
        found = run(nearest.nprobes(PROBES).refine_factor(REFINE), "_distance")
        if query is not None:
            by_words = run(storage.table.search(query, query_type="fts", fts_columns=TEXT), "_score")
            found = import_lancedb().rerankers.RRFReranker().rerank_hybrid(query, found, by_words).slice(0, count)
    except (ValueError, RuntimeError, OSError) as error:
        if where is None:
            raise
        names = shown_names(storage.columns)
        reason = str(error).splitlines()[0].partition(" Valid fields")[0][:200]
        raise InputError(f"The filter {shown(where)} cannot be used ({reason}). The columns are: {names}.") from error
    generic = 1 - np.asarray(found["_distance"]) if query is None else matrix(found[GENERIC]) @ vector
    return {name: found[name] for name in [*columns, "_relevance_score"] if name in found.column_names}, generic


def mixed(
    instructed: NDArray[np.floating[Any]], generic: NDArray[np.floating[Any]], weight: float | str
) -> tuple[NDArray[np.floating[Any]], float]:
    """Both scores as one.

    Args:
        instructed: Cosines under the instruction, shape (n,).
        generic: Cosines of the generic vectors, shape (n,).
        weight: Of the generic score, from 0 to 1, or "auto".

    Returns:
        The mean, shape (n,), and the weight.

    Raises:
        InputError: When the weight is out of range.
    """
    if weight == "auto":
        spread, other = float(instructed.std()), float(generic.std())
        weight = other / (spread + other) if spread + other > 0 else 0.0
    if isinstance(weight, str) or not 0 <= weight <= 1:
        raise InputError(f'weight must be "auto" or a number from 0 to 1, not {shown(weight)}.')
    return (1 - weight) * instructed + weight * generic, float(weight)
