"""One question apart from another: vectors without the directions in which the groups of the other question differ.

Reviews that are asked for their topic also differ by praise and blame, and groups of topics may follow it. The means of the other
question's groups, in the vectors of the first, span the directions in which its answers move the first. Without them, no
difference of these means is left to group by.
"""

from __future__ import annotations

import numpy as np

from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors

MIN_RELATIVE_LENGTH = 1e-4
"""Minimum length of a direction, relative to the longest."""


def find_group_directions(vectors: Vectors, labels: Labels) -> Vectors:
    """Find the directions in which the means of groups differ.

    Args:
        vectors: Vectors of one question, shape (n, d); only their directions count.
        labels: Groups of another question, shape (n,), 0 .. k-1.

    Returns:
        An orthonormal basis of the differences, float32 (float64 for float64 vectors), shape (r, d), r at most k - 1.
    """
    directions = normalize_vectors(vectors)
    means = np.stack([directions[labels == number].mean(axis=0) for number in np.unique(labels)])
    _, lengths, basis = np.linalg.svd(means - directions.mean(axis=0), full_matrices=False)
    is_used = lengths > MIN_RELATIVE_LENGTH * max(lengths.max(initial=0.0), 1e-9)
    return np.asarray(basis[is_used][: len(means) - 1], dtype=directions.dtype)


def remove_directions(vectors: Vectors, directions: Vectors) -> Vectors:
    """Remove directions from vectors.

    Args:
        vectors: Shape (n, d); only their directions count.
        directions: Result of ``find_group_directions``, shape (r, d).

    Returns:
        Vectors of length 1 that are orthogonal to the directions, float32, shape (n, d).
    """
    scaled = normalize_vectors(vectors)
    remaining: Vectors = normalize_vectors(scaled - (scaled @ directions.T) @ directions)
    return remaining
