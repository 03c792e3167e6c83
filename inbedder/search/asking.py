"""A new question about the texts of an index: a sample is read under it, and the vectors of the others are estimated.

The estimate is a linear map of the stored general-purpose vectors (see ``encoding.guided``), so the time to read does not grow
with the index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.encoding.guided import MIN_COSINE, GuidedVectors, encode_guided
from inbedder.errors import InputError, format_value
from inbedder.search.arrow import to_matrix
from inbedder.search.index_rows import EARLIER, GENERIC, ID, TEXT
from inbedder.search.lance_engine import translate_engine_errors
from inbedder.search.model_vectors import encode_instructed, name_column
from inbedder.vectors.vectors import normalize_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbedder.embedder import InBedder
    from inbedder.grouping.clustering import ClusterResult
    from inbedder.search.storage import Storage


def read_ordered(storage: Storage, columns: Sequence[str]) -> Any:
    """Read columns of all rows, in the order of their ids, so that a sample stays the same when rows move on disk.

    Args:
        storage: The index.
        columns: Names of columns, the id among them.

    Returns:
        A pyarrow table. Ids that are numbers are in the order of their values.
    """
    with translate_engine_errors(storage.folder):
        rows = storage.table.search().select(list(columns)).limit(None).to_arrow()
    ids = rows[ID].to_pylist()
    return rows.take(sorted(range(len(ids)), key=lambda row: (len(ids[row]), ids[row])))


def estimate_vectors(
    model: InBedder,
    rows: Any,
    instruction: str,
    sample: int,
    *,
    seed: int = 0,
    min_cosine: float = MIN_COSINE,
    answers: bool = False,
) -> GuidedVectors:
    """Read a sample of rows under an instruction, and estimate the vectors of the others.

    Args:
        model: The index's model.
        rows: A pyarrow table with texts and general-purpose vectors.
        instruction: A question, or ``@name``.
        sample: Number of texts to read.
        seed: Seed of the sample.
        min_cosine: Cosine of held-out rows below which every text is read instead.
        answers: Whether the sample is also answered, for the cache.

    Returns:
        float32 of length 1, shape (n, d).

    Raises:
        InputError: If the sample is too small.
    """
    texts = rows[TEXT].to_pylist()
    vectors = encode_guided(
        lambda numbers: encode_instructed(model, [texts[number] for number in numbers], instruction, answers=answers),
        np.hstack([to_matrix(rows[name]) for name in (GENERIC, EARLIER) if name in rows.column_names]),
        sample=sample,
        seed=seed,
        min_cosine=min_cosine,
    )
    estimated: GuidedVectors = vectors.with_values(normalize_vectors(np.asarray(vectors)))
    return estimated


def read_rows_to_group(storage: Storage, question: str) -> Any:
    """Read the rows of an index, their general-purpose vectors, and the stored ones under a question.

    Args:
        storage: The index.
        question: The question, or ``@name``.

    Returns:
        A pyarrow table.

    Raises:
        InputError: If the index is empty.
    """
    if not len(storage):
        raise InputError(f"{format_value(str(storage.folder))} holds no rows. Add some first.")
    name = name_column(question)
    return read_ordered(storage, [*storage.columns, *storage.general_columns, *([name] if name in storage.instructed else [])])


def group_rows(model: InBedder, rows: Any, question: str, *, sample: int, k: int | str, seed: int) -> ClusterResult:
    """Group rows by a question under which only a sample is read, however poor the estimate of the others is.

    Args:
        model: The index's model.
        rows: What ``read_rows_to_group`` returned. If it has the vectors of all n texts under the question, none is estimated.
        question: The question, or ``@name``.
        sample: Number of texts to read.
        k: Number of groups, or "auto".
        seed: Seed of the sample and of the groups.

    Returns:
        The groups; the index of their frame is that of the ids.

    Raises:
        InputError: If the sample or k cannot be used.
    """
    from inbedder.grouping.cluster_options import ClusterOptions
    from inbedder.grouping.clustering import cluster
    from inbedder.grouping.describe.question_effect import add_effects

    ClusterOptions(k=k, seed=seed).check_count(len(rows))  # before a text is read
    name = name_column(question)
    if name in rows.column_names and not rows[name].null_count:
        vectors = to_matrix(rows[name]).view(GuidedVectors)
        count = min(sample, len(rows))
        vectors.cosine, vectors.sample = 1.0, np.sort(np.random.default_rng(seed).choice(len(rows), count, replace=False))
    else:
        vectors = estimate_vectors(model, rows, question, sample, seed=seed, min_cosine=-1.0, answers=True)
    result = cluster(rows[TEXT].to_pylist(), question, model, k, seed, embeddings=vectors)
    note = _explain_estimate(vectors)
    (result,) = add_effects([replace(result, notes=[*result.notes, *note])], to_matrix(rows[GENERIC]), seed)
    return replace(result, index=rows[ID].to_pylist())


def _explain_estimate(vectors: GuidedVectors) -> list[str]:
    """Write the note on how many texts were read and how well the vectors of the others are estimated."""
    count, read = len(vectors), len(vectors if vectors.sample is None else vectors.sample)
    if count == read or vectors.cosine is None or vectors.cosine == 1:
        return []
    note = f"{read:,} of {count:,} texts were read; the vectors of the others are estimated (cosine {vectors.cosine:.2f})."
    return [note if vectors.cosine >= MIN_COSINE else f"{note} This is too little to rely on: read more of them."]
