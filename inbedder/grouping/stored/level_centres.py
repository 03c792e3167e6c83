"""The centres of a grouping, for saving: one for each part of each group, under the question that decides it.

So a merged group keeps the centres of all its parts, and moved texts pull texts like them along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inbedder.grouping.partition.group_distances import measure_member_distances
from inbedder.vectors.vectors import normalize_vectors

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.vectors.vectors import Labels, Vectors


class LevelCentres(NamedTuple):
    """The centres of one question, for saving."""

    centres: Vectors
    """Means of the vectors of length 1, float32, shape (c, d)."""
    targets: list[int]
    """Group of each centre, or -j if its texts go on to level j."""
    labels: Labels
    """Centre of each distance, int64, shape (m,)."""
    distances: Vectors
    """Distance of each text to the mean of the other texts of its centre, float32, shape (m,)."""


def find_centres(result: GroupedTexts) -> list[LevelCentres]:
    """Find the centres of a grouping: one for each part of each group, under the question that decides it.

    Args:
        result: The grouping; texts that fit no group have no centre.

    Returns:
        Level 0, the grouping's question, and a level for each split.
    """
    fitting = np.flatnonzero(result.labels != (-1 if result.left_out is None else result.left_out))
    parts = result.labels if result.parts is None else result.parts
    sample = getattr(result.embeddings, "sample", None)
    levels = [_find_level(result, 0, fitting, result.embeddings[fitting], parts[fitting], sample)]
    for number, split in enumerate(result.splits, 1):
        levels.append(_find_level(result, number, split.rows, split.vectors, split.parts, None))
    return levels


def _find_level(result: GroupedTexts, level: int, rows: Labels, vectors: Vectors, parts: Labels, sample: Any) -> LevelCentres:
    """Find the centres of some rows: the means of those with the same part and the same target."""
    targets = result.labels[rows].copy()
    for number in range(len(result.splits), level, -1):  # the first later split of a row is its target
        targets[np.isin(rows, result.splits[number - 1].rows)] = -number
    pairs, pair_of = np.unique(np.stack([targets, parts], axis=1), axis=0, return_inverse=True)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    centres, labels, distances = [], [], []
    for position, pair in enumerate(order):
        members = np.flatnonzero(pair_of.ravel() == pair)
        directions = np.asarray(normalize_vectors(vectors[members]))
        centres.append(directions.mean(axis=0))
        if sample is not None:  # mapped vectors lie closer together than encoded ones
            directions = directions[np.isin(rows[members], sample)]
        distances.append(measure_member_distances(directions, centres[-1], len(members)))
        labels.append(np.full(len(distances[-1]), position, dtype=np.int64))
    return LevelCentres(np.stack(centres), pairs[order, 0].tolist(), np.concatenate(labels), np.concatenate(distances))
