"""From cosines to categories and to "none of these"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Labels, Vectors

DEFAULT_TEMPERATURE = 0.07
"""Temperature without labelled rows; the probabilities then only order the categories."""
RUNNER_UP_QUANTILE = 0.25
"""A text is in none of the categories if its best cosine is below this quantile of all texts' second-best cosines."""


def find_min_score(scores: Vectors) -> float:
    """Find the cosine below which a text of the corpus is in none of the categories.

    Args:
        scores: Cosine of each text and category, shape (n, k), k at least 2.

    Returns:
        The lower quartile of the second-best cosines: a text is in none if its best category fits it less than most texts'
        runner-up fits them.
    """
    return float(np.quantile(np.partition(scores, -2, axis=1)[:, -2], RUNNER_UP_QUANTILE))


def choose_categories(scores: Vectors, min_score: float | None) -> Labels:
    """Choose the category of each text.

    Args:
        scores: Cosine of each text and category, shape (n, k).
        min_score: Minimum cosine of a text in a category; None chooses one for every text.

    Returns:
        int64, shape (n,), 0 .. k-1; -1 for a text below the minimum.
    """
    labels: Labels = scores.argmax(axis=1)
    return labels if min_score is None else np.where(scores.max(axis=1) < min_score, -1, labels)
