"""Vectors: their type, length 1, cosines, bytes; and arrays of them that know something of themselves as a whole."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import ModelError

Vectors = NDArray[np.float32]
V = TypeVar("V", bound=NDArray[np.float32])
MIN_NORM = 1e-12
"""Vectors that are shorter count as vectors of zeros, which are similar to nothing."""


class AnnotatedArray(np.ndarray[Any, np.dtype[np.float32]]):
    """Vectors, float32, with metadata of the whole array.

    Arrays that are derived from it (a slice, a copy, a product, a pickle) have none: their metadata is None.
    """

    metadata: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that hold metadata."""

    def __array_finalize__(self, source: Any) -> None:
        for name in self.metadata:
            setattr(self, name, None)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


def normalize_vectors(vectors: Any) -> NDArray[Any]:
    """Vectors of length 1; those of zeros stay.

    Args:
        vectors: float, shape (..., d).

    Returns:
        A new array of the same shape and type.
    """
    array = np.asarray(vectors)
    return np.asarray(array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), MIN_NORM), dtype=array.dtype)


def check_finite(vectors: V) -> V:
    """Check for NaN and infinite values.

    Args:
        vectors: float32, shape (m, n, d) or (n, d), of n texts.

    Returns:
        The same array.

    Raises:
        ModelError: When a text has such a value.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(*range(vectors.ndim - 2), -1)))
    if len(bad):
        raise ModelError(
            f"The model gave NaN or infinite values for {len(bad)} of {vectors.shape[-2]} texts (first: text {bad[0]}). "
            "Load it with dtype='float32'."
        )
    return vectors


def concatenate_vectors(own: Vectors, other: Vectors) -> Vectors:
    """Two models' vectors of the same texts in one, whose cosines are the means of theirs.

    Args:
        own: float32, shape (..., d).
        other: float32, shape (..., k).

    Returns:
        Both at length 1, shape (..., d + k).
    """
    return np.concatenate([normalize_vectors(own), normalize_vectors(other)], axis=-1)


def compute_row_cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine of each row of ``a`` with the same row of ``b``; 0 where one is zero.

    Args:
        a: Shape (n, d).
        b: Shape (n, d).

    Returns:
        Shape (n,).
    """
    cosines: NDArray[np.float64] = (normalize_vectors(a.astype(np.float64)) * normalize_vectors(b.astype(np.float64))).sum(axis=1)
    return cosines


def similarity(a: Any, b: Any) -> Vectors:
    """Cosine similarities.

    Args:
        a: Vectors, shape (n, d) or (d,).
        b: Vectors, shape (m, d) or (d,).

    Returns:
        float32, shape (n, m); a vector of zeros is similar to nothing.
    """
    left, right = (normalize_vectors(np.atleast_2d(np.asarray(side, dtype=np.float32))) for side in (a, b))
    product: Vectors = left @ right.T
    return product


def pack_vector(vector: Vectors) -> bytes | None:
    """float32, little-endian; None where a number is infinite or none."""
    return vector.astype("<f4").tobytes() if np.isfinite(vector).all() else None


def unpack_vector(data: bytes) -> Vectors:
    """The vector of ``pack_vector``."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
