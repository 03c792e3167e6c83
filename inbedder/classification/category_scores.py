"""From scores (cosines) to categories, to "none of these" and to "not sure"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Labels, Vectors

DEFAULT_TEMPERATURE = 0.07
"""Temperature without labelled rows; the probabilities then only order the categories."""
RUNNER_UP_QUANTILE = 0.25
"""A text is in none of the categories if its best score is below this quantile of all texts' second-best scores."""
LEAD_QUANTILE = 0.25
"""The category of a text is not sure if its lead is below this quantile of all texts' leads."""


def find_min_score(scores: Vectors) -> float:
    """Find the score below which a text of the corpus is in none of the categories.

    Args:
        scores: Score of each text and category, shape (n, k), k at least 2.

    Returns:
        The lower quartile of the second-best scores: a text is in none if its best category fits it less than most texts'
        runner-up fits them.
    """
    return float(np.quantile(np.partition(scores, -2, axis=1)[:, -2], RUNNER_UP_QUANTILE))


def compute_leads(scores: Vectors) -> Vectors:
    """Compute by how much the best score of each text exceeds its second-best one: shape (n,)."""
    ranked = np.partition(scores, -2, axis=1)
    leads: Vectors = ranked[:, -1] - ranked[:, -2]
    return leads


def find_min_lead(scores: Vectors) -> float:
    """Find the lead below which the category of a text of the corpus is not sure: the lower quartile of the leads."""
    return float(np.quantile(compute_leads(scores), LEAD_QUANTILE))


def choose_categories(scores: Vectors, min_score: float | None, min_lead: float | None = None) -> Labels:
    """Choose the category of each text.

    Args:
        scores: Score of each text and category, shape (n, k).
        min_score: Minimum score of a text in a category; None leaves no text out.
        min_lead: Minimum difference of the best and the second-best score; None leaves no text out.

    Returns:
        int64, shape (n,), 0 .. k-1; -1 for a text below a minimum.
    """
    labels: Labels = scores.argmax(axis=1)
    if min_score is not None:
        labels = np.where(scores.max(axis=1) < min_score, -1, labels)
    return labels if min_lead is None else np.where(compute_leads(scores) < min_lead, -1, labels)
