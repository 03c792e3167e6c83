"""From scores to probabilities: the softmax of the scores divided by a temperature.

The temperature is fitted on rows whose label is known, so that the labels are as likely as can be (Guo et al. 2017, "On
Calibration of Modern Neural Networks").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Labels, Vectors

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.005, 2.0


def compute_probabilities(scores: Vectors, temperature: float) -> Vectors:
    """Compute probabilities from scores.

    Args:
        scores: Score of each row and label, shape (n, k).
        temperature: The temperature.

    Returns:
        float32, shape (n, k); each row sums to 1.
    """
    from scipy.special import softmax

    probabilities: Vectors = softmax(scores.astype(np.float64) / temperature, axis=1).astype(np.float32)
    return probabilities


def fit_temperature(scores: Vectors, labels: Labels) -> float:
    """Fit the temperature that makes known labels most likely.

    Args:
        scores: Score of each row and label, shape (n, k).
        labels: Known label of each row, shape (n,), 0 .. k-1.

    Returns:
        The temperature.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(len(labels))

    def compute_loss(log_temperature: float) -> float:
        return -float(log_softmax(scores.astype(np.float64) / np.exp(log_temperature), axis=1)[rows, labels].mean())

    bounds = (np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE))
    log_temperature = round(float(minimize_scalar(compute_loss, bounds=bounds, method="bounded").x), 3)  # found to about 1e-5
    return float(np.exp(log_temperature))
