"""Distances of vectors to the centres of groups, and how well vectors fit.

A text joins the group with the nearest centre. Its typicality is the share of stored texts that lie at least as far from their
centre: about 5 of 100 texts like the stored ones have a typicality below 0.05. A text pulls its own centre towards itself, so a
stored text's distance is measured to the centre of the other members, which is n / (n - 1) times as far. Distances of all groups
are pooled: on the labelled sets this detected the rows of a held-out label better than separate distances per group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.cluster_options import MAX_PAIRED_ROWS
from inbedder.vectors.vectors import MIN_NORM, Labels, Vectors, normalize_vectors

MIN_NEW_GROUP_ROWS = 10
"""Minimum number of rows in a new group."""
LOOSE_QUANTILE = 0.9
"""Quantile of the stored groups' radii that bounds the radius of a new group."""


def measure_fit(vectors: Vectors, labels: Labels) -> Vectors:
    """Measure how well each text fits its group: its silhouette with respect to the centres.

    With the distance a to the centre of the own group and b to the nearest other centre, the fit is (b - a) / max(a, b): 1 at the
    centre, 0 between two groups, below 0 if another centre is nearer. Centres are means of the vectors scaled to length 1.

    Args:
        vectors: Shape (n, d).
        labels: Group of each vector, shape (n,), 0 .. k-1; -1 for a text in no group.

    Returns:
        float32, shape (n,), -1 to 1; NaN for a text in no group, and for all texts if there is only one group.
    """
    directions = normalize_vectors(vectors)
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
    silhouettes[rows] = (to_other - to_own) / np.maximum(np.maximum(to_own, to_other), MIN_NORM)
    return silhouettes


def find_nearest_centres(vectors: Vectors, centres: Vectors) -> tuple[Labels, Vectors]:
    """Find the nearest centre of each vector.

    Args:
        vectors: Shape (n, d).
        centres: Shape (k, d).

    Returns:
        Number of the centre, int64, shape (n,), and its distance, float32, shape (n,).
    """
    from sklearn.metrics import pairwise_distances_argmin_min

    labels, distances = pairwise_distances_argmin_min(vectors, centres)
    return labels.astype(np.int64), distances.astype(np.float32)


def measure_member_distances(vectors: Vectors, centre: Vectors, size: int) -> Vectors:
    """Measure the distance of each member of a group to the mean of the other members.

    Args:
        vectors: Vectors of some or all members, shape (n, d).
        centre: Mean of all members, shape (d,).
        size: Number of members.

    Returns:
        float32, shape (n,); 0 for a single member.
    """
    distances: Vectors = (np.linalg.norm(vectors - centre, axis=1) * (size / max(size - 1, 1))).astype(np.float32)
    return distances


def measure_typicality(distances: Vectors, stored_distances: Vectors) -> Vectors:
    """Measure the share of stored rows that lie at least as far from their centre as each new row.

    Args:
        distances: Distance of each new row to the nearest centre, shape (n,).
        stored_distances: Result of ``measure_member_distances``, shape (m,).

    Returns:
        float32, shape (n,), above 0 and at most 1, because the new row counts among the stored rows.
    """
    ordered = np.sort(stored_distances)
    farther_counts = len(ordered) - np.searchsorted(ordered, distances)
    typicality: Vectors = ((farther_counts + 1) / (len(ordered) + 1)).astype(np.float32)
    return typicality


def find_new_groups(vectors: Vectors, stored_labels: Labels, stored_distances: Vectors) -> list[NDArray[np.intp]]:
    """Find new groups among rows that fit no stored group, about as tight as the stored groups.

    Average linkage joins rows while the mean distance between two rows of a group does not exceed that of a loose stored group:
    rows at a distance r from their mean are about r * sqrt(2) apart.

    Args:
        vectors: Vectors of length 1, shape (n, d); only the first 20,000 are used.
        stored_labels: Group of each stored row, shape (m,).
        stored_distances: Result of ``measure_member_distances``, shape (m,).

    Returns:
        Positions of the rows of each group of at least ten, the largest group first.
    """
    if len(vectors) < MIN_NEW_GROUP_ROWS or not len(stored_labels):
        return []
    from sklearn.cluster import AgglomerativeClustering

    radii = [stored_distances[stored_labels == number].mean() for number in np.unique(stored_labels)]
    threshold = float(np.quantile(radii, LOOSE_QUANTILE)) * 2**0.5
    linkage = AgglomerativeClustering(n_clusters=None, distance_threshold=threshold, linkage="average")
    labels = linkage.fit_predict(vectors[:MAX_PAIRED_ROWS])
    groups = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
    return sorted((rows for rows in groups if len(rows) >= MIN_NEW_GROUP_ROWS), key=len, reverse=True)
