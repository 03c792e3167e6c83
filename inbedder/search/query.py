"""A query's answer: candidates by generic vectors, put in order by what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import inbedder.search.model_vectors as model_vectors
from inbedder.arguments import whole_number
from inbedder.embedder import InBedder
from inbedder.errors import InputError, MissingExtraError, shown
from inbedder.search.arrow import matrix
from inbedder.search.index_rows import TEXT
from inbedder.search.ranking import candidates as find_candidates
from inbedder.search.ranking import mixed
from inbedder.search.storage import Storage
from inbedder.vectors import row_cosines

if TYPE_CHECKING:
    import pandas as pd


def search(
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
        query: What is searched for.
        instruction: What is asked of query and texts; None leaves the generic order.
        k: How many rows.
        candidates: How many are read again under the instruction.
        where: An SQL filter on the columns.
        hybrid: Whether BM25 has a say in the candidates.
        weight: As ``ranking.mixed`` takes it.

    Returns:
        At most k rows, the best first.

    Raises:
        InputError: When the index is empty, the filter cannot be used, or a number is out of range.
        MissingExtraError: When pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas", "search") from error
    k, candidates = whole_number("k", k, 1), whole_number("candidates", candidates, 1)
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"The query has to be a text, not {shown(query)}.")
    own, instructed = storage.columns, storage.instructed
    known = None if instruction is None else model_vectors.column_of(instruction)
    known = known if known in instructed else None
    vector = model_vectors.generic_vectors(model, [query], False)[0]
    columns = [*own, *([known] if known else [])]
    count = k if instruction is None else max(k, candidates)
    found, generic = find_candidates(storage, vector, query if hybrid else None, count, where, columns)
    texts = found[TEXT].to_pylist()
    if not texts and not len(storage):
        raise InputError(f"{shown(str(storage.folder))} holds no rows. Add some first.")
    scores: dict[str, NDArray[Any]] = {"generic_score": generic}
    if instruction is None:
        scores["score"] = np.asarray(found.get("_relevance_score", generic))
    elif texts:
        scores["instructed_score"] = _instructed(model, query, texts, instruction, found[known] if known else None)
        scores["score"], _ = mixed(scores["instructed_score"], generic, weight)
    else:
        scores["instructed_score"] = scores["score"] = generic
    order = np.argsort(-scores["score"], kind="stable")[:k]
    rows = {name: found[name].take(order).to_pylist() for name in own}
    rows |= {name: scores[name][order].tolist() for name in ("score", "generic_score", "instructed_score") if name in scores}
    if instruction is not None and model.backbone.answers:
        rows["answer"] = list(model.answer(rows[TEXT], instruction, show_progress_bar=False)) if rows[TEXT] else []
    return pd.DataFrame(rows)


def _instructed(model: InBedder, query: str, texts: list[str], instruction: str, column: Any) -> NDArray[Any]:
    """Cosine of the query and each text under the instruction; vectors that a column holds are not computed."""
    missing = [row for row in range(len(texts)) if column is None or not column[row].is_valid]
    read = model_vectors.instructed_vectors(model, [query, *(texts[row] for row in missing)], instruction, False)
    vectors = np.empty((len(texts), read.shape[1]), dtype=np.float32)
    if column is not None:
        vectors[np.setdiff1d(np.arange(len(texts)), missing)] = matrix(column.drop_null())
    vectors[missing] = read[1:]
    return row_cosines(vectors, np.broadcast_to(read[0], vectors.shape))
