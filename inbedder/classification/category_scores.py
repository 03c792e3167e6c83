"""From cosines to probabilities and to "none of these".

Probabilities are the softmax of the cosines divided by a temperature, which is fitted on labelled rows (Guo et al. 2017). Without
labelled rows it is a default, and the numbers only order the categories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from inbedder.grouping.partition import Labels
    from inbedder.vectors import Vectors

DEFAULT_TEMPERATURE = 0.07
"""Temperature without labelled rows."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.005, 2.0
RUNNER_UP_QUANTILE = 0.25
"""A text is in none of the categories if its best cosine is below this quantile of all texts' second-best cosines."""


def compute_probabilities(scores: Vectors, temperature: float) -> Vectors:
    """Compute probabilities from cosines.

    Args:
        scores: Cosine of each text and category, shape (n, k).
        temperature: The temperature.

    Returns:
        float32, shape (n, k); each row sums to 1.
    """
    from scipy.special import softmax

    probabilities: Vectors = softmax(scores.astype(np.float64) / temperature, axis=1).astype(np.float32)
    return probabilities


def fit_temperature(scores: Vectors, labels: Labels) -> float:
    """Fit the temperature that makes known categories most likely.

    Args:
        scores: Cosine of each labelled text and category, shape (n, k).
        labels: Known category of each text, shape (n,), 0 .. k-1.

    Returns:
        The temperature.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(len(labels))

    def compute_loss(log_temperature: float) -> float:
        return -float(log_softmax(scores.astype(np.float64) / np.exp(log_temperature), axis=1)[rows, labels].mean())

    bounds = (np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE))
    return float(np.exp(minimize_scalar(compute_loss, bounds=bounds, method="bounded").x))


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
