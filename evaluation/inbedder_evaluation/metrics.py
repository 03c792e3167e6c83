"""Metrics of the tasks, as percentages or correlations times 100."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.vectors.vectors import Vectors, compute_row_cosines, normalize_vectors


def triplet_success(anchors: Vectors, closer: Vectors, farther: Vectors) -> float:
    """Compute the percentage of triplets whose anchor is strictly more similar to the closer text (ties are failures).

    Args:
        anchors: Shape (n, d).
        closer: Shape (n, d), the texts that should win.
        farther: Shape (n, d).

    Returns:
        0 to 100.
    """
    return 100 * float(np.mean(triplet_wins(anchors, closer, farther)))


def triplet_wins(anchors: Vectors, closer: Vectors, farther: Vectors) -> NDArray[np.bool_]:
    """Test for each triplet whether its anchor is strictly more similar to the closer text.

    Args:
        anchors: Shape (n, d).
        closer: Shape (n, d), the texts that should win.
        farther: Shape (n, d).

    Returns:
        n booleans.
    """
    return np.asarray(compute_row_cosines(anchors, closer) > compute_row_cosines(anchors, farther))


def harmonic_mean(values: Sequence[float]) -> float:
    """Compute the harmonic mean of non-negative scores; it is 0 when one of them is 0.

    Args:
        values: At least one score.

    Returns:
        The mean.
    """
    return 0.0 if min(values) <= 0 else len(values) / sum(1 / value for value in values)


def spearman(similarities: Sequence[float] | NDArray[Any], scores: Sequence[float] | NDArray[Any]) -> float:
    """Compute the Spearman correlation times 100, with average ranks for ties; it is 0 when one side is constant.

    Args:
        similarities: n numbers.
        scores: n numbers.

    Returns:
        -100 to 100.
    """
    from scipy.stats import rankdata

    return pearson(*(rankdata(np.asarray(similarity, dtype=np.float64)) for similarity in (similarities, scores)))


def pearson(similarities: Sequence[float] | NDArray[Any], scores: Sequence[float] | NDArray[Any]) -> float:
    """Compute the Pearson correlation times 100; it is 0 when one side is constant.

    Args:
        similarities: n numbers.
        scores: n numbers.

    Returns:
        -100 to 100.
    """
    sides = [np.asarray(similarity, dtype=np.float64) for similarity in (similarities, scores)]
    if any(np.ptp(side) == 0 for side in sides):
        return 0.0
    return 100 * float(np.corrcoef(sides[0], sides[1])[0, 1])


def fleiss_kappa(counts: NDArray[Any]) -> float:
    """Compute Fleiss' kappa, the agreement of raters beyond chance (Fleiss 1971).

    Args:
        counts: Number of raters that put each subject in each category, shape (subjects, categories); each row sums to the same
            number of raters, at least 2.

    Returns:
        1 for perfect agreement, 0 for agreement by chance.

    Raises:
        ValueError: If the raters use only one category, so that chance agrees as well.
    """
    if np.count_nonzero(counts.sum(0)) < 2:
        raise ValueError("Fleiss' kappa needs ratings of at least two categories.")
    raters = counts[0].sum()
    agreement = np.mean((np.square(counts).sum(1) - raters) / (raters * (raters - 1)))
    chance = np.square(counts.sum(0) / counts.sum()).sum()
    return float((agreement - chance) / (1 - chance))


def v_measure(vectors: Vectors, labels: Sequence[str], seed: int, protocol: str = "k-means") -> float:
    """Compute the V-measure times 100 of k-means with as many clusters as there are distinct labels.

    Args:
        vectors: Shape (n, d).
        labels: n labels.
        seed: Seed of k-means.
        protocol: "k-means" or "paper", see ``group_vectors``.

    Returns:
        0 to 100.
    """
    from sklearn.metrics import v_measure_score

    return 100 * float(v_measure_score(labels, group_vectors(vectors, len(set(labels)), seed, protocol)))


def group_vectors(vectors: Vectors, count: int, seed: int, protocol: str = "k-means") -> NDArray[np.int32]:
    """Group vectors by k-means.

    Args:
        vectors: Shape (n, d).
        count: Number of groups.
        seed: Seed of k-means.
        protocol: "k-means" (normalized vectors, best of ten starts) or "paper" (mini-batch k-means with batches of 500, vectors
            not normalized, one start), which is what the InBedder authors' code does.

    Returns:
        The group of each vector, int32, shape (n,).
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if protocol == "paper":
        grouping = MiniBatchKMeans(n_clusters=count, batch_size=500, n_init="auto", random_state=seed)
        return np.asarray(grouping.fit(vectors).labels_)
    return np.asarray(KMeans(n_clusters=count, n_init=10, random_state=seed).fit_predict(normalize_vectors(vectors)))
