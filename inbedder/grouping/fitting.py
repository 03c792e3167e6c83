"""How well vectors fit groups: distances to centres, measured against those of the texts that the groups are made of.

A text goes to the group whose centre is nearest. How well it fits is the share of the kept texts that lie as far from their
centre: of 100 texts like the kept ones about five have a fit below 0.05. A text pulls its own centre towards itself, so a kept
text's distance is that to the centre of the others, n / (n - 1) times as far. Distances of all groups are pooled: on the labelled
sets that found the rows of a label held out better than the distances of each group alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.partition import PAIRED, Labels
from inbedder.vectors import SHORTEST, Vectors, unit

FEWEST = 10
"""Fewest rows of a group of their own."""
LOOSE = 0.9
"""A loose group is one that this share of the kept groups are tighter than."""


def measure_fit(vectors: Vectors, labels: Labels) -> Vectors:
    """Measure how well each text fits its group rather than another one: the silhouette, measured to centres.

    With a, the distance to the centre of its own group, and b, the one to the nearest other centre, it is (b - a) / max(a, b): 1
    at the centre, 0 between two groups, below 0 where another centre is nearer. Centres are means of the vectors of length 1.

    Args:
        vectors: Shape (n, d).
        labels: Group of each vector, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Shape (n,), -1 to 1; NaN for a text in no group, and for all where there is one group alone.
    """
    directions = unit(vectors)
    groups, silhouettes = np.unique(labels[labels >= 0]), np.full(len(labels), np.nan, dtype=np.float32)
    if len(groups) < 2:
        return silhouettes
    centres = np.stack([directions[labels == group].mean(axis=0) for group in groups])
    squares = (directions**2).sum(axis=1, keepdims=True) - 2 * directions @ centres.T + (centres**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares, 0))  # shape (n, k)
    rows = np.flatnonzero(labels >= 0)
    own_group = np.searchsorted(groups, labels[rows])
    to_own = distances[rows, own_group]
    distances[rows, own_group] = np.inf
    to_other = distances[rows].min(axis=1)
    silhouettes[rows] = (to_other - to_own) / np.maximum(np.maximum(to_own, to_other), SHORTEST)
    return silhouettes


def nearest(vectors: Vectors, centres: Vectors) -> tuple[Labels, Vectors]:
    """The nearest centre of each vector.

    Args:
        vectors: Shape (n, d).
        centres: Shape (k, d).

    Returns:
        Its number, shape (n,), and how far it is, float32, shape (n,).
    """
    from sklearn.metrics import pairwise_distances_argmin_min

    labels, distances = pairwise_distances_argmin_min(vectors, centres)
    return labels.astype(np.int64), distances.astype(np.float32)


def own_distances(vectors: Vectors, centre: Vectors, size: int) -> Vectors:
    """Distance of members of a group to the mean of its others.

    Args:
        vectors: Of some or all members, shape (n, d).
        centre: Mean of all members, shape (d,).
        size: How many members there are; a single one has the distance 0.

    Returns:
        float32, shape (n,).
    """
    distances: Vectors = (np.linalg.norm(vectors - centre, axis=1) * (size / max(size - 1, 1))).astype(np.float32)
    return distances


def typicality_of(distances: Vectors, kept_distances: Vectors) -> Vectors:
    """Share of the kept rows that lie as far from their centre as each new row does from its own.

    Args:
        distances: Of new rows to the nearest centre, shape (n,).
        kept_distances: As ``own_distances`` gives them, shape (m,).

    Returns:
        float32, shape (n,), above 0 and at most 1: the new row itself counts among the kept ones.
    """
    kept = np.sort(kept_distances)
    beyond = len(kept) - np.searchsorted(kept, distances)
    fit: Vectors = ((beyond + 1) / (len(kept) + 1)).astype(np.float32)
    return fit


def own_groups(vectors: Vectors, kept_labels: Labels, kept_distances: Vectors) -> list[NDArray[np.intp]]:
    """Groups that rows which fit none form of their own, each about as tight as the kept ones.

    Average linkage joins rows while those of a group lie, pair by pair, no farther apart on average than in a loose kept group:
    rows at a distance r from their mean are about r times the square root of 2 apart.

    Args:
        vectors: The rows, shape (n, d), of length 1; of more than 20,000 the first are looked at.
        kept_labels: Group of each kept row, shape (m,).
        kept_distances: As ``own_distances`` gives them, shape (m,).

    Returns:
        The rows of each group of at least ten, the largest first.
    """
    if len(vectors) < FEWEST or not len(kept_labels):
        return []
    from sklearn.cluster import AgglomerativeClustering

    loose = np.quantile([kept_distances[kept_labels == number].mean() for number in np.unique(kept_labels)], LOOSE)
    joining = AgglomerativeClustering(n_clusters=None, distance_threshold=float(loose) * 2**0.5, linkage="average")
    labels = joining.fit_predict(vectors[:PAIRED])
    groups = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
    return sorted((rows for rows in groups if len(rows) >= FEWEST), key=len, reverse=True)
