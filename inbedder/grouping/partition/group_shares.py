"""How much a text belongs to each group: the softmax of its closeness to the groups' centres.

The temperature is fitted on the corpus: each half of the texts is scored against the centres of the other half. So a text between
two groups, which another sample would put into the other one, gets a share of both.
"""

from __future__ import annotations

import numpy as np

from inbedder.grouping.partition.temperature import compute_probabilities, fit_temperature
from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors


def measure_group_shares(vectors: Vectors, labels: Labels) -> Vectors:
    """Measure the share of each group in each text.

    Args:
        vectors: Shape (n, d); only their directions count.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.

    Returns:
        float32, shape (n, k); each row sums to 1. The groups of the largest shares need not be those of ``labels``.
    """
    directions = normalize_vectors(vectors)
    rows = np.flatnonzero(labels >= 0)
    centres = _find_centres(directions[rows], labels[rows])
    is_first = np.random.default_rng(0).permutation(len(rows)) % 2 == 0
    scores = np.zeros((len(rows), len(centres)), dtype=np.float32)
    for half in (is_first, ~is_first):
        other_centres = _find_centres(directions[rows][~half], labels[rows][~half], centres)
        scores[half] = _score(directions[rows][half], other_centres)
    return compute_probabilities(_score(directions, centres), fit_temperature(scores, labels[rows]))


def _find_centres(directions: Vectors, labels: Labels, defaults: Vectors | None = None) -> Vectors:
    """Find the mean of each group, or its default if it has no text."""
    count = int(labels.max()) + 1 if defaults is None else len(defaults)
    groups = [directions[labels == number] for number in range(count)]
    means = [group.mean(axis=0) if len(group) or defaults is None else defaults[i] for i, group in enumerate(groups)]
    centres: Vectors = np.stack(means)
    return centres


def _score(directions: Vectors, centres: Vectors) -> Vectors:
    """Score closeness by the negative squared distance, shape (n, k)."""
    scores: Vectors = 2 * directions @ centres.T - (centres**2).sum(axis=1)
    return scores
