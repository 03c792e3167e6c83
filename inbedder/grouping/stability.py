"""How stable each group is: does it come back when the texts are drawn again?

Hennig's bootstrap (2007, "Cluster-wise assessment of cluster stability"; ``clusterboot`` of R's fpc): rows are drawn with
replacement, drawn rows count once, and are grouped again into as many groups. A group's stability is the Jaccard similarity of
its drawn rows with the new group that is most like them, its mean over the draws. Hennig calls groups from 0.75 on stable, and
advises not to trust those below 0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.partition import Labels
from inbedder.vectors import Vectors

MIN_STABLE, MAX_SHAKY = 0.75, 0.6
DRAWS = 20
MAX_DRAWN_ROWS = 2000
"""Rows of a draw, so that its time does not grow with the corpus."""


def measure_stability(
    vectors: Vectors,
    labels: Labels,
    regroup: Callable[[Vectors, int, int], Labels],
    seed: int = 0,
    draws: int = DRAWS,
    parts: int | None = None,
) -> list[float]:
    """Measure the bootstrap stability of each group.

    Args:
        vectors: Shape (n, d).
        labels: Group of each row, shape (n,), 0 .. k-1; rows below 0 are in no group.
        regroup: Groups rows: vectors, number of groups and seed to labels.
        seed: Seed of the draws.
        draws: Number of samples.
        parts: Into how many groups rows were grouped, where some of these were merged afterwards: rows that are drawn are grouped
            into as many, each of which joins the merged group that most of its rows are of.

    Returns:
        Mean Jaccard similarity of each group, k numbers from 0 to 1.
    """
    count = int(labels.max()) + 1
    if count < 2:
        return [1.0] * count
    random = np.random.default_rng(seed)
    similarities = np.full((draws, count), np.nan)
    for draw in range(draws):
        rows = np.unique(random.integers(len(vectors), size=min(len(vectors), MAX_DRAWN_ROWS)))
        sample = vectors[rows]
        new_labels = regroup(sample, min(parts or count, len(np.unique(sample, axis=0))), seed)
        similarities[draw] = _compare_groups(labels[rows], new_labels, count, merged=parts is not None and parts > count)
    never_drawn = np.isnan(similarities).all(axis=0)
    similarities[:, never_drawn] = 0.0
    return [float(mean) for mean in np.nanmean(similarities, axis=0)]


def describe_stability(stability: float) -> Literal["stable", "shaky", ""]:
    """Describe a group's stability: "stable" from 0.75 on, "shaky" below 0.6 (Hennig 2007), nothing between the two."""
    return "stable" if stability >= MIN_STABLE else "shaky" if stability < MAX_SHAKY else ""


def _compare_groups(labels: Labels, new_labels: Labels, count: int, merged: bool) -> NDArray[np.float64]:
    """Jaccard similarity of each group with the new group most like it, shape (count,); NaN where it has no row."""
    members = labels[:, None] == np.arange(count)
    new_members = new_labels[:, None] == np.arange(int(new_labels.max()) + 1)
    intersections = members.T.astype(np.float64) @ new_members
    if merged:
        merged_into = np.eye(count)[intersections.argmax(axis=0)]
        new_members, intersections = new_members @ merged_into, intersections @ merged_into
    unions = members.sum(axis=0)[:, None] + new_members.sum(axis=0) - intersections
    best = (intersections / np.maximum(unions, 1)).max(axis=1, initial=0.0)
    similarity: NDArray[np.float64] = np.where(members.any(axis=0), best, np.nan)
    return similarity
