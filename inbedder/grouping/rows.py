"""Where each text stands in a grouping: its group, what the group is called, its answer, and how well it fits.

Groups are numbered from 1, as on the page and in the terminal; labels in Python count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.vectors import SHORTEST, Vectors, unit

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult


def fits(vectors: Vectors, labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """How well each text fits its group rather than another one: the silhouette, measured to centres.

    With a, the distance to the centre of its own group, and b, the one to the nearest other centre, it is (b - a) / max(a, b): 1
    at the centre, 0 between two groups, below 0 where another centre is nearer. Centres are means of the vectors of length 1.

    Args:
        vectors: Shape (n, d).
        labels: Group of each vector, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Shape (n,), -1 to 1; NaN for a text in no group, and for all where there is one group alone.
    """
    directions = unit(vectors)
    groups, found = np.unique(labels[labels >= 0]), np.full(len(labels), np.nan, dtype=np.float32)
    if len(groups) < 2:
        return found
    centres = np.stack([directions[labels == group].mean(axis=0) for group in groups])
    squares = (directions**2).sum(axis=1, keepdims=True) - 2 * directions @ centres.T + (centres**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares, 0))  # shape (n, k)
    rows = np.flatnonzero(labels >= 0)
    own_group = np.searchsorted(groups, labels[rows])
    own = distances[rows, own_group]
    distances[rows, own_group] = np.inf
    other = distances[rows].min(axis=1)
    found[rows] = (other - own) / np.maximum(np.maximum(own, other), SHORTEST)
    return found


def group_columns(results: Sequence[ClusterResult]) -> dict[str, list[Any]]:
    """Columns that say where each text stands.

    Args:
        results: Groupings of the same n texts.

    Returns:
        For one grouping "group" (from 1), "group_name", "answer" and "fit" (see ``fits``), n values each; for several, each of
        these with the question behind it, as in "group: What is it about?". A text that fits no group has None
        for its number and its fit.
    """
    columns: dict[str, list[Any]] = {}
    for result in results:
        suffix = f": {result.instruction}" if len(results) > 1 else ""
        while f"group{suffix}" in columns:  # the same question once more
            suffix += " (again)"
        fitting = result.labels if result.left_out is None else np.where(result.labels == result.left_out, -1, result.labels)
        labels, names = fitting.tolist(), result.names
        columns[f"group{suffix}"] = [label + 1 if label >= 0 else None for label in labels]
        columns[f"group_name{suffix}"] = [names[label] for label in result.labels.tolist()]
        columns[f"answer{suffix}"] = list(result.answers)
        columns[f"fit{suffix}"] = [
            None if math.isnan(fit) else round(fit, 3) for fit in fits(result.embeddings, fitting).tolist()
        ]
    return columns
