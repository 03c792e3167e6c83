"""The categories of texts as groups, for the report, cross tables and timelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.grouping.clustering import ClusterResult
from inbedder.grouping.describe.describe_groups import describe_groups
from inbedder.grouping.grouped_texts import NO_INSTRUCTION
from inbedder.grouping.provenance import Provenance

if TYPE_CHECKING:
    from inbedder.classification.category_result import Classification
    from inbedder.embedder import InBedder


def make_category_groups(classification: Classification, model: InBedder, **options: Any) -> ClusterResult:
    """Make a grouping whose groups are the categories that have texts.

    Args:
        classification: The categories of n texts.
        model: The model that classified them.
        **options: Keyword arguments of ``InBedder.answer``.

    Returns:
        The grouping, the largest category first; texts in none of the categories form the last group.
    """
    labels, texts, question = classification.labels, classification.texts, classification.instruction
    numbers, sizes = np.unique(labels[labels >= 0], return_counts=True)
    order = numbers[np.argsort(-sizes, kind="stable")].tolist()
    has_others = bool((labels < 0).any())
    rank = np.full(len(classification.categories) + 1, len(order), dtype=np.int64)  # the last entry is for -1
    rank[order] = np.arange(len(order))
    names = [classification.categories[number].name for number in order]
    provenance = Provenance(model.spec, question)
    answers = provenance.answer(model, texts, **options)
    vectors, names = classification.embeddings, [*names, ""] if has_others else names
    return ClusterResult(
        instruction=NO_INSTRUCTION if question is None else question,
        texts=texts,
        labels=rank[labels],
        answers=answers,
        embeddings=vectors,
        notes=[note] if (note := classification.describe_left_out()) else [],
        left_out=len(order) if has_others else None,
        provenance=provenance,
        index=classification.index,
        **describe_groups(texts, vectors, rank[labels], answers, names)._asdict(),
    )
