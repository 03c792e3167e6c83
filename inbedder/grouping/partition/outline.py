"""The outline of a grouping: branches, each with several groups whose centres are close."""

from __future__ import annotations

import numpy as np

from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors

MIN_BRANCHED_GROUPS = 7
"""Minimum number of groups for an outline; fewer are read at a glance."""


def find_branches(vectors: Vectors, labels: Labels, count: int | None = None) -> list[int] | None:
    """Find the branches of a grouping: k-means over the groups' centres, weighted by their sizes.

    Args:
        vectors: Shape (n, d); only their directions count.
        labels: Group of each row, shape (n,), 0 .. k-1; -1 for a row in no group.
        count: Number of branches, at most k; None for about the square root of k from ``MIN_BRANCHED_GROUPS`` groups on.

    Returns:
        Branch of each group, k numbers from 0, the branch with the most rows first; None if there are too few groups.
    """
    sizes = np.bincount(labels[labels >= 0])
    if count is None and len(sizes) < MIN_BRANCHED_GROUPS:
        return None
    from sklearn.cluster import KMeans

    directions = normalize_vectors(vectors)
    centres = np.stack([directions[labels == group].mean(axis=0) for group in range(len(sizes))])
    clusterer = KMeans(n_clusters=count or round(len(sizes) ** 0.5), n_init=10, random_state=0)
    branches = clusterer.fit_predict(centres, sample_weight=sizes)
    order = np.argsort(-np.bincount(branches, weights=sizes), kind="stable")
    ranked: list[int] = np.argsort(order)[branches].tolist()
    return ranked
