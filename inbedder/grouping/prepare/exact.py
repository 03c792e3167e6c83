"""Vectors that are the same on every machine, so that groups, names and pages are.

Processors, numbers of threads and batch sizes add numbers in different orders, so the last bits of vectors differ. k-means turns
such a difference into another group, and t-SNE into another map. Here the model computes in float64, where the difference is
about 1e-15, and vectors are rounded to multiples of 1/1024: another order then changes a rounded value about once in 10^11
values. In float32 it is about once in 100,000. All further steps start from the rounded values and compute in float64, and
whatever orders by a computed number rounds it first, so that equal numbers stay equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.vectors.vectors import normalize_vectors

STEPS = 1024
"""Number of steps from 0 to 1. In 384 dimensions rounding turns a vector by about 0.3 degrees."""


def round_vectors(vectors: NDArray[Any]) -> NDArray[Any]:
    """Scale vectors to length 1 and round their values.

    Args:
        vectors: Shape (n, d).

    Returns:
        Multiples of 1/1024, float64, shape (n, d).

    Example:
        >>> import numpy as np
        >>> from inbedder.grouping.prepare.exact import round_vectors
        >>> (round_vectors(np.array([[3.0, 4.0]])) * 1024).tolist()
        [[614.0, 819.0]]
    """
    return np.asarray(np.rint(normalize_vectors(vectors.astype(np.float64)) * STEPS) / STEPS)
