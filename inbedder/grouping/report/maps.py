"""Where texts stand on the map of a grouping: one dot per text, or squares that show how many there are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbedder.vectors import unit

MAX_DOTS = 5000
"""Texts of which each is one dot; more are drawn by density."""
TSNE_RANGE = range(10, 3001)
FITTED_ON = 20_000
"""Vectors that the two main directions are found from."""
WIDTH, HEIGHT, MARGIN, CELL = 640, 480, 26, 10
Points = NDArray[np.float64]
Labels = NDArray[np.int64]


class Mark(NamedTuple):
    """A dot of one text, or a square for the texts of one group in one place."""

    x: float
    y: float
    group: int
    texts: int
    size: float
    """Radius of a dot, half the side of a square."""
    opacity: float


def project(vectors: NDArray[np.float32]) -> tuple[Points, str]:
    """Lay vectors out on a plane.

    Args:
        vectors: Shape (n, d), n at least 1; only their directions count.

    Returns:
        Points, shape (n, 2), their longer extent first, and how they were found: "t-SNE" for 10 to 3000 vectors, else "PCA" (of
        20,000 of them, if there are more), or "none" when the vectors are all alike.
    """
    directions = unit(vectors)
    directions = np.pad(directions, ((0, 0), (0, max(0, 2 - directions.shape[1]))))
    count = len(directions)
    if np.ptp(directions, axis=0).max() < 1e-6:
        return np.zeros((count, 2)), "none"
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if count in TSNE_RANGE:
        tsne = TSNE(init="pca", perplexity=min(30.0, (count - 1) / 3), random_state=0)
        points, method = tsne.fit_transform(directions.astype(np.float64)), "t-SNE"
    else:
        chosen = np.random.default_rng(0).permutation(count)[:FITTED_ON]
        pca = PCA(2, random_state=0).fit(directions[np.sort(chosen)].astype(np.float64))
        points, method = directions @ pca.components_.T.astype(np.float32), "PCA"
    points = np.asarray(points - points.mean(axis=0), dtype=np.float64)
    return points @ np.linalg.svd(points, full_matrices=False)[2].T, method


def place(points: Points) -> Points:
    """Fit points into the map.

    Args:
        points: Shape (n, 2).

    Returns:
        Their places in its units, shape (n, 2), to one decimal.
    """
    size = np.array([WIDTH, HEIGHT])
    scale = ((size - 2 * MARGIN) / np.maximum(np.ptp(points, axis=0), 1e-9)).min()
    placed: Points = ((points - (points.max(axis=0) + points.min(axis=0)) / 2) * scale + size / 2).round(1)
    return placed


def dots(placed: Points, labels: Labels) -> tuple[list[Mark], Labels]:
    """One dot per text, shuffled so that no group is always drawn on top.

    Args:
        placed: Place of each text, shape (n, 2).
        labels: Group of each text, shape (n,).

    Returns:
        The n marks, and the mark of each text, shape (n,).
    """
    order = np.random.default_rng(0).permutation(len(labels))
    radius = round(float(np.clip(74 / np.sqrt(len(labels)), 2.4, 6.0)), 2)
    columns = (placed[order].tolist(), labels[order].tolist())
    marks = [Mark(x, y, label, 1, radius, 1.0) for (x, y), label in zip(*columns, strict=True)]
    return marks, np.argsort(order)


def density(placed: Points, labels: Labels) -> tuple[list[Mark], Labels]:
    """Squares on a grid, one per group and place: areas are the groups' shares of the place, strength is how many texts it has.

    Args:
        placed: Place of each text, shape (n, 2).
        labels: Group of each text, shape (n,).

    Returns:
        The marks, those of a place's larger groups first, and the mark of each text, shape (n,).
    """
    across = WIDTH // CELL
    cells = (placed // CELL).astype(np.int64) @ np.array([1, across])
    groups = int(labels.max()) + 1
    kinds, mark_of, counts = np.unique(cells * groups + labels, return_inverse=True, return_counts=True)
    where, group = kinds // groups, kinds % groups
    inside = np.bincount(where, weights=counts)[where]
    sizes = (CELL / 2 * np.sqrt(counts / inside)).round(2)
    strength = (0.25 + 0.75 * np.log1p(inside) / np.log1p(inside.max())).round(2)
    order = np.lexsort((-counts, where))
    middle = np.stack([where % across, where // across], axis=1) * CELL + CELL / 2
    columns = (*middle.T, group, counts, sizes, strength)
    marks = [Mark(*values) for values in zip(*(column[order].tolist() for column in columns), strict=True)]
    return marks, np.argsort(order)[mark_of]


def middle_of(places: Points) -> tuple[float, float] | None:
    """Where the number of a group stands: at the dot nearest to its middle, lifted off where there are few dots to cover.

    Args:
        places: Places of the group's texts, shape (m, 2).

    Returns:
        The place, or None of no texts.
    """
    if not len(places):
        return None
    x, y = places[np.linalg.norm(places - np.median(places, axis=0), axis=1).argmin()]
    return float(x), round(float(y) - (17 if len(places) < 8 else 0), 1)
