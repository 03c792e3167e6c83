"""Where each text stands in a grouping: its group, what the group is called, its answer, and how well it fits.

Groups are numbered from 1, as on the page and in the terminal; labels in Python count from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult


def fits(vectors: Vectors, labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """How well each text fits its group: the cosine of its vector and the group's centre, the mean of the vectors of length 1.

    Args:
        vectors: Shape (n, d).
        labels: Group of each vector, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Shape (n,), -1 to 1; NaN for a text in no group.
    """
    directions = unit(vectors)
    cosines = np.full(len(labels), np.nan, dtype=np.float32)
    for group in np.unique(labels[labels >= 0]):
        members = labels == group
        centre = unit(directions[members].mean(axis=0, keepdims=True))[0]
        cosines[members] = directions[members] @ centre
    return cosines


def group_columns(results: Sequence[ClusterResult]) -> dict[str, list[Any]]:
    """Columns that say where each text stands.

    Args:
        results: Groupings of the same n texts.

    Returns:
        For one grouping "group" (from 1), "group_name", "answer" and "fit" (see ``fits``), n values each; for several, each of
        these with the question behind it, as in "group: What is it about?". A text in no group has None, "" and None.
    """
    columns: dict[str, list[Any]] = {}
    for result in results:
        suffix = f": {result.instruction}" if len(results) > 1 else ""
        while f"group{suffix}" in columns:  # the same question once more
            suffix += " (again)"
        labels, names = result.labels.tolist(), result.names
        columns[f"group{suffix}"] = [label + 1 if label >= 0 else None for label in labels]
        columns[f"group_name{suffix}"] = [names[label] if label >= 0 else "" for label in labels]
        columns[f"answer{suffix}"] = list(result.answers)
        cosines = fits(result.embeddings, result.labels).tolist()
        columns[f"fit{suffix}"] = [round(fit, 3) if label >= 0 else None for fit, label in zip(cosines, labels, strict=True)]
    return columns
