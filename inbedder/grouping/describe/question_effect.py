"""What a question does to the groups: how much they change without it, and whether its answers are worth little."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from inbedder.grouping.partition.number_of_groups import count_distinct_rows
from inbedder.grouping.partition.partition import group
from inbedder.runtime.threads import limit_threads

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.vectors.vectors import Vectors

MIN_SAME, MIN_RELATED = 0.6, 0.2
"""Adjusted Rand index from which groups are nearly the same, and from which they are related."""
MAX_COMPARED_ROWS = 20_000
"""Maximum number of texts that are grouped without the question; more are sampled."""

MIN_YES_OR_NO_SHARE = 0.9
"""Minimum share of answers that are yes or no."""
YES_OR_NO_NOTE = (
    "The answers are yes and no, and models often answer so by chance: read some of the texts, and ask for a word instead, such "
    "as 'Is the staff rude or polite?' or 'What was late?'."
)


def explain_yes_or_no(answers: Iterable[str]) -> list[str]:
    """Explain that answers of yes and no say little.

    Args:
        answers: Answers to a question; empty ones do not count.

    Returns:
        One sentence if at least 90% of the answers are yes or no, else none.
    """
    first_words = [answer.casefold().split()[0].strip(".,!") for answer in answers if answer.strip()]
    yes_or_no_count = sum(word in ("yes", "no") for word in first_words)
    return [YES_OR_NO_NOTE] if first_words and yes_or_no_count >= MIN_YES_OR_NO_SHARE * len(first_words) else []


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
    if len(fitting) > MAX_COMPARED_ROWS:
        fitting = np.sort(np.random.default_rng(seed).choice(fitting, MAX_COMPARED_ROWS, replace=False))
    count = len(np.unique(result.labels[fitting]))
    if count < 2 or count_distinct_rows(general_vectors[fitting], count) < count:
        return ""
    with limit_threads(len(fitting)):
        index = float(adjusted_rand_score(result.labels[fitting], group(general_vectors[fitting], count, seed)))
    agreement = f"(agreement {max(index, 0):.2f}; 1: the same groups, 0: unrelated ones)"
    if index >= MIN_SAME:
        return f"The question changes little: without one, nearly the same groups form {agreement}."
    if index >= MIN_RELATED:
        return f"The question changes the groups in part: without one, related groups form {agreement}."
    return f"The question makes the groups: without one, others form {agreement}."


def add_effects(results: Sequence[ClusterResult], general_vectors: Vectors, seed: int = 0) -> list[ClusterResult]:
    """Note on each grouping how much its question changes it.

    Args:
        results: Groupings of the same n texts.
        general_vectors: Vectors of the texts without a question, shape (n, d).
        seed: Seed of k-means.

    Returns:
        The groupings with at most one more note each.
    """
    effects = [describe_effect(result, general_vectors, seed) for result in results]
    return [
        replace(result, notes=[*result.notes, effect]) if effect else result
        for result, effect in zip(results, effects, strict=True)
    ]
