"""The stability of groups under resampling.

The method is Hennig's bootstrap (2007, "Cluster-wise assessment of cluster stability"; ``clusterboot`` in R's fpc). Each resample
draws rows with replacement, keeps each row once and groups the rows again. A group's stability is the Jaccard similarity of its
resampled rows with the most similar new group, averaged over the resamples. Hennig calls groups from 0.75 stable and advises
against trusting groups below 0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inbedder.runtime.cancellation import check_cancelled
from inbedder.vectors.vectors import Labels, Vectors

MIN_STABLE, MAX_SHAKY = 0.75, 0.6
"""Minimum stability of a stable group, and the stability below which a group is shaky."""
DEFAULT_RESAMPLES = 20
MAX_RESAMPLED_ROWS = 2000
"""Maximum number of rows drawn per resample, which bounds its time."""


def measure_stability(
    vectors: Vectors,
    labels: Labels,
    regroup: Callable[[Vectors, int, int], Labels],
    seed: int = 0,
    resamples: int = DEFAULT_RESAMPLES,
    initial_count: int | None = None,
) -> list[float]:
    """Measure the bootstrap stability of each group.

    Args:
        vectors: Shape (n, d).
        labels: Group of each row, shape (n,), 0 .. k-1; -1 for a row in no group.
        regroup: Function of vectors, number of groups and seed that returns labels.
        seed: Seed of the resamples.
        resamples: Number of resamples.
        initial_count: Number of groups before some were merged. Each resample is grouped into as many, and each new group joins
            the merged group that holds most of its rows.

    Returns:
        Mean Jaccard similarity of each group, k numbers from 0 to 1.
    """
    count = int(labels.max()) + 1
    if count < 2:
        return [1.0] * count
    random = np.random.default_rng(seed)
    similarities = np.full((resamples, count), np.nan)
    for number in range(resamples):
        check_cancelled()
        rows = np.unique(random.integers(len(vectors), size=min(len(vectors), MAX_RESAMPLED_ROWS)))
        sample = vectors[rows]
        new_labels = regroup(sample, min(initial_count or count, len(np.unique(sample, axis=0))), seed)
        is_merged = initial_count is not None and initial_count > count
        similarities[number] = _compare_groups(labels[rows], new_labels, count, is_merged)
    is_never_drawn = np.isnan(similarities).all(axis=0)
    similarities[:, is_never_drawn] = 0.0
    return [float(mean) for mean in np.nanmean(similarities, axis=0)]


def describe_stability(stability: float) -> Literal["stable", "shaky", ""]:
    """Describe a group's stability: "stable" from 0.75, "shaky" below 0.6 (Hennig 2007), else an empty string."""
    return "stable" if stability >= MIN_STABLE else "shaky" if stability < MAX_SHAKY else ""


def _compare_groups(labels: Labels, new_labels: Labels, count: int, is_merged: bool) -> NDArray[np.float64]:
    """Compute each group's Jaccard similarity with the most similar new group, shape (count,); NaN for a group without rows."""
    members = labels[:, None] == np.arange(count)
    new_members = new_labels[:, None] == np.arange(int(new_labels.max()) + 1)
    intersections = members.T.astype(np.float64) @ new_members
    if is_merged:
        merged_into = np.eye(count)[intersections.argmax(axis=0)]
        new_members, intersections = new_members @ merged_into, intersections @ merged_into
    unions = members.sum(axis=0)[:, None] + new_members.sum(axis=0) - intersections
    best = (intersections / np.maximum(unions, 1)).max(axis=1, initial=0.0)
    similarity: NDArray[np.float64] = np.where(members.any(axis=0), best, np.nan)
    return similarity
