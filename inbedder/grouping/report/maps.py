"""The map of a grouping: one dot per text, or squares that show the density of many texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbedder.runtime.threads import limit_threads
from inbedder.vectors.vectors import Labels, normalize_vectors

MAX_DOTS = 5000
"""Maximum number of texts drawn as dots; a map of more shows their density."""
TSNE_ROWS = range(10, 3001)
"""Numbers of texts that t-SNE lays out; PCA lays out others."""
MAX_PCA_ROWS = 20_000
"""Maximum number of vectors that PCA is fitted to."""
WIDTH, HEIGHT, MARGIN, CELL = 640, 480, 26, 10
Points = NDArray[np.float64]


class Mark(NamedTuple):
    """A dot for one text, or a square for the texts of one group in one grid cell."""

    x: float
    y: float
    group: int
    texts: int
    size: float
    """Radius of a dot, half the side of a square."""
    opacity: float


def project(vectors: NDArray[Any], *, exact: bool = False) -> tuple[Points, str]:
    """Project vectors onto a plane.

    Args:
        vectors: Shape (n, d), n at least 1; only their directions count.
        exact: Whether the map shall be the same on every machine: t-SNE makes another map of other last bits, PCA does not.

    Returns:
        Points, float64, shape (n, 2), the longer extent first; and the method: "none" if all vectors are equal, "t-SNE" for 10 to
        3000 vectors unless ``exact``, else "PCA" (fitted to at most 20,000 vectors).
    """
    directions = normalize_vectors(vectors)
    directions = np.pad(directions, ((0, 0), (0, max(0, 2 - directions.shape[1]))))
    count = len(directions)
    if np.ptp(directions, axis=0).max() < 1e-6:
        return np.zeros((count, 2)), "none"
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if count in TSNE_ROWS and not exact:
        tsne = TSNE(init="pca", perplexity=min(30.0, (count - 1) / 3), random_state=0)
        points, method = tsne.fit_transform(directions.astype(np.float64)), "t-SNE"
    else:
        sampled_rows = np.random.default_rng(0).permutation(count)[:MAX_PCA_ROWS]
        pca = PCA(2, random_state=0, svd_solver="covariance_eigh" if exact else "auto")
        axes = pca.fit(directions[np.sort(sampled_rows)].astype(np.float64)).components_
        points, method = directions @ axes.T.astype(directions.dtype), "PCA"
    points = np.asarray(points - points.mean(axis=0), dtype=np.float64)
    if exact:
        return points, method  # another rotation could mirror them
    return points @ np.linalg.svd(points, full_matrices=False)[2].T, method


def project_all(vectors: Iterable[NDArray[Any]], *, exact: bool = False) -> list[tuple[Points, str]]:
    """Project several sets of vectors of the same texts, and turn each map so that the texts lie near their places on the first.

    Args:
        vectors: One array per map, shape (n, d), with the same n.
        exact: Whether the maps shall be the same on every machine.

    Returns:
        Points and method of each map, as from ``project``.
    """
    layouts = [project(each, exact=exact) for each in vectors]
    reference = layouts[0][0]
    return [layouts[0], *((align(points, reference), method) for points, method in layouts[1:])]


def align(points: Points, reference: Points) -> Points:
    """Rotate or reflect points onto others (orthogonal Procrustes analysis). Their distances stay the same.

    Args:
        points: Shape (n, 2), with mean 0.
        reference: Shape (n, 2), with mean 0.

    Returns:
        The points, shape (n, 2), with the smallest sum of squared distances to the reference.
    """
    from scipy.linalg import orthogonal_procrustes

    rotation: Points = orthogonal_procrustes(points, reference)[0]
    return points @ rotation


def place_points(points: Points) -> Points:
    """Scale points to the map.

    Args:
        points: Shape (n, 2).

    Returns:
        Positions in the map's units, shape (n, 2), rounded to one decimal.
    """
    size = np.array([WIDTH, HEIGHT])
    scale = ((size - 2 * MARGIN) / np.maximum(np.ptp(points, axis=0), 1e-9)).min()
    positions: Points = ((points - (points.max(axis=0) + points.min(axis=0)) / 2) * scale + size / 2).round(1)
    return positions


def place_texts(vectors: Sequence[NDArray[Any]], *, exact: bool = False) -> list[tuple[Points, str]]:
    """Place the texts on one map per set of vectors.

    Args:
        vectors: One array per map, shape (n, d), with the same n.
        exact: Whether the maps shall be the same on every machine.

    Returns:
        Positions in the map's units, as from ``place_points``, and method of each map, as from ``project``.
    """
    with limit_threads(len(vectors[0])):
        return [(place_points(points), method) for points, method in project_all(vectors, exact=exact)]


def draw_dots(positions: Points, labels: Labels) -> tuple[list[Mark], Labels]:
    """Draw one dot per text, shuffled so that no group is always on top.

    Args:
        positions: Position of each text, shape (n, 2).
        labels: Group of each text, shape (n,).

    Returns:
        The n marks, and the mark of each text, shape (n,).
    """
    order = np.random.default_rng(0).permutation(len(labels))
    radius = round(float(np.clip(74 / np.sqrt(len(labels)), 2.4, 6.0)), 2)
    columns = (positions[order].tolist(), labels[order].tolist())
    marks = [Mark(x, y, label, 1, radius, 1.0) for (x, y), label in zip(*columns, strict=True)]
    return marks, np.argsort(order)


def draw_density(positions: Points, labels: Labels) -> tuple[list[Mark], Labels]:
    """Draw one square per group and grid cell.

    The area of a square is the group's share of the cell; its opacity grows with the cell's number of texts.

    Args:
        positions: Position of each text, shape (n, 2).
        labels: Group of each text, shape (n,).

    Returns:
        The marks, the larger groups of a cell first, and the mark of each text, shape (n,).
    """
    cells_per_row = WIDTH // CELL
    cells = (positions // CELL).astype(np.int64) @ np.array([1, cells_per_row])
    groups = int(labels.max()) + 1
    mark_ids, mark_of, counts = np.unique(cells * groups + labels, return_inverse=True, return_counts=True)
    cell, group = mark_ids // groups, mark_ids % groups
    cell_counts = np.bincount(cell, weights=counts)[cell]
    sizes = (CELL / 2 * np.sqrt(counts / cell_counts)).round(2)
    opacity = (0.25 + 0.75 * np.log1p(cell_counts) / np.log1p(cell_counts.max())).round(2)
    order = np.lexsort((-counts, cell))
    centres = np.stack([cell % cells_per_row, cell // cells_per_row], axis=1) * CELL + CELL / 2
    columns = (*centres.T, group, counts, sizes, opacity)
    marks = [Mark(*values) for values in zip(*(column[order].tolist() for column in columns), strict=True)]
    return marks, np.argsort(order)[mark_of]


def find_badge_position(positions: Points) -> tuple[float, float] | None:
    """Find the position of a group's number: the dot nearest to the group's median, or above it if the group has few dots.

    Args:
        positions: Positions of the group's texts, shape (m, 2).

    Returns:
        The position; None for a group without texts.
    """
    if not len(positions):
        return None
    x, y = positions[np.linalg.norm(positions - np.median(positions, axis=0), axis=1).argmin()]
    return float(x), round(float(y) - (17 if len(positions) < 8 else 0), 1)
