"""How much a question changes the groups: their agreement with those that form without a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from inbedder.grouping.partition.partition import group
from inbedder.runtime.threads import limit_threads

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.vectors.vectors import Vectors

MIN_SAME, MIN_RELATED = 0.6, 0.2
"""Adjusted Rand index from which groups are nearly the same, and from which they are related."""


def describe_effect(result: GroupedTexts, general_vectors: Vectors, seed: int = 0) -> str:
    """Describe how much the question of a grouping changes it.

    Args:
        result: The grouping of n texts.
        general_vectors: Vectors of the texts without a question, shape (n, d).
        seed: Seed of k-means.

    Returns:
        One sentence; empty for fewer than two groups.
    """
    from sklearn.metrics import adjusted_rand_score

    fitting = np.flatnonzero(result.labels != result.left_out) if result.left_out is not None else np.arange(len(result.labels))
    count = len(np.unique(result.labels[fitting]))
    if not 2 <= count <= len(np.unique(general_vectors[fitting], axis=0)):
        return ""
    with limit_threads(len(fitting)):
        index = float(adjusted_rand_score(result.labels[fitting], group(general_vectors[fitting], count, seed)))
    agreement = f"(agreement {max(index, 0):.2f}; 1: the same groups, 0: unrelated ones)"
    if index >= MIN_SAME:
        return f"The question changes little: without one, nearly the same groups form {agreement}."
    if index >= MIN_RELATED:
        return f"The question changes the groups in part: without one, related groups form {agreement}."
    return f"The question makes the groups: without one, others form {agreement}."
