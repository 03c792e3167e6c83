"""One search: find candidates by generic vectors, then rerank them under the instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import inbedder.search.model_vectors as model_vectors
from inbedder.arguments import check_integer
from inbedder.embedder import InBedder
from inbedder.errors import InputError, format_value, import_extra
from inbedder.search.index_rows import TEXT
from inbedder.search.ranking import find_candidates, mix_scores
from inbedder.search.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

MAX_RESULTS = 1_000_000
"""Largest number of rows to return, and of candidates."""


def search_rows(
    storage: Storage,
    model: InBedder,
    query: str,
    instruction: str | None,
    *,
    k: int,
    candidates: int,
    where: str | None,
    hybrid: bool,
    weight: float | str,
) -> pd.DataFrame:
    """Find and order rows.

    Args:
        storage: The index.
        model: Its model.
        query: The text to search for.
        instruction: The question about query and texts; None keeps the generic order.
        k: Maximum number of rows to return.
        candidates: Number of candidates to rerank under the instruction.
        where: An SQL filter on the columns.
        hybrid: Whether BM25 also finds candidates.
        weight: Weight of the generic score, from 0 to 1, or "auto".

    Returns:
        At most k rows, the best first.

    Raises:
        InputError: If the index is empty, the filter cannot be used, or a number is out of range.
        MissingExtraError: If pandas is not installed.
    """
    pd = import_extra("pandas", "search")
    k, candidates = check_integer("k", k, 1, MAX_RESULTS), check_integer("candidates", candidates, 1, MAX_RESULTS)
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"The query must be a non-empty string, not {format_value(query)}.")
    columns, vector_column = storage.columns, None
    if instruction is not None and (name := model_vectors.name_column(instruction)) in storage.instructed:
        vector_column = name
    vector = model_vectors.encode_generic(model, [query], False)[0]
    selection = [*columns, *([vector_column] if vector_column else [])]
    count = k if instruction is None else max(k, candidates)
    cells, generic = find_candidates(storage, vector, query if hybrid else None, count, where, selection)
    texts = cells[TEXT].to_pylist()
    if not texts and not len(storage):
        raise InputError(f"{format_value(str(storage.folder))} holds no rows. Add some first.")
    scores: dict[str, NDArray[Any]] = {"generic_score": generic}
    if instruction is None:
        scores["score"] = np.asarray(cells.get("_relevance_score", generic))
    elif texts:
        vectors = cells[vector_column] if vector_column else None
        scores["instructed_score"] = model_vectors.score_texts(model, query, texts, instruction, vectors)
        scores["score"], _ = mix_scores(scores["instructed_score"], generic, weight)
    else:
        scores["instructed_score"] = scores["score"] = generic
    order = np.argsort(-scores["score"], kind="stable")[:k]
    rows = {name: cells[name].take(order).to_pylist() for name in columns}
    rows |= {name: scores[name][order].tolist() for name in ("score", "generic_score", "instructed_score") if name in scores}
    if instruction is not None and model.backbone.answers:
        rows["answer"] = list(model.answer(rows[TEXT], instruction, show_progress_bar=False)) if rows[TEXT] else []
    return pd.DataFrame(rows)
