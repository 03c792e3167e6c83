"""From cosines to the probabilities of typed decisions: yes or no, one of several options, a level of a scale.

An option is a category (``classifier``): its probability is a softmax of the cosines. A statement without an opposite has only
one cosine, so its probability is a logistic function of it, fitted on labelled sets (``evaluation/results/decisions.json``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from inbedder.classification.category_scores import DEFAULT_TEMPERATURE
from inbedder.grouping.partition.temperature import compute_probabilities

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Vectors

STATEMENT_THRESHOLD = 0.2
"""Cosine of a text and a statement at which yes and no are equally likely."""
STATEMENT_TEMPERATURE = 0.4
"""Cosine above the threshold that multiplies the odds of yes by e."""


def compute_option_probabilities(cosines: Vectors) -> Vectors:
    """Compute the probability of each option: float32, shape (n, k), from cosines of that shape."""
    return compute_probabilities(cosines, DEFAULT_TEMPERATURE)


def compute_statement_probabilities(cosines: Vectors) -> Vectors:
    """Compute the probability that a statement holds for each text: shape (n,), from the cosines of texts and statement."""
    odds = np.exp((cosines.astype(np.float64) - STATEMENT_THRESHOLD) / STATEMENT_TEMPERATURE)
    probabilities: Vectors = (odds / (1 + odds)).astype(np.float32)
    return probabilities


def compute_confidences(probabilities: Vectors) -> Vectors:
    """Compute how far the best probability is above chance.

    Args:
        probabilities: Probabilities of k options, at least two, shape (n, k).

    Returns:
        Shape (n,): 0 if all options are equally likely, 1 if one is certain.
    """
    chance = 1 / probabilities.shape[1]
    confidences: Vectors = (probabilities.max(axis=1) - chance) / (1 - chance)
    return confidences
