"""Vectors: type, length, normalization, precision, cosines, serialization, and arrays with metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, ModelError
from inbedder.vectors.precision import quantize_vectors

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]
Vector = np.ndarray[tuple[int], np.dtype[np.float32]]
"""One vector, shape (d,)."""
VectorRows = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""One vector per text, shape (n, d)."""
V = TypeVar("V", bound=NDArray[np.float32])
MIN_NORM = 1e-12
"""Shorter vectors are treated as zero vectors, whose cosine with any vector is 0."""
MIN_RELATIVE_SUM = 1e-4
"""Shorter sums of float32 states, relative to the longer summand, are rounding (about 1e-6, which differs by batch)."""
MIN_RELATIVE_COARSE_SUM = 0.04
"""The same for half precision and int8 weights: rounding is up to 0.025, and the differences of texts begin at 0.06."""


class AnnotatedArray(np.ndarray[Any, np.dtype[np.float32]]):
    """Vectors with metadata of the whole array.

    The metadata of derived arrays (a slice, a copy, a product, a pickle) is None.
    """

    metadata: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that hold metadata."""

    def __array_finalize__(self, source: Any) -> None:
        for name in self.metadata:
            setattr(self, name, None)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def with_values(self, vectors: NDArray[Any]) -> Any:
        """Return other vectors of the same texts, with this array's metadata."""
        array: Any = np.asarray(vectors).view(type(self))
        for name in self.metadata:
            setattr(array, name, getattr(self, name))
        return array


@dataclass(frozen=True)
class VectorFormat:
    """What is done to the combined vectors before they are returned: the format arguments of every encode method."""

    truncate_dim: int | None = None
    """Number of leading dimensions to keep; None keeps all."""
    normalize_embeddings: bool = False
    """Whether to scale the vectors to length 1."""
    precision: str = "float32"
    """A key of ``PRECISIONS``."""

    def apply(self, vectors: Vectors) -> Any:
        """Truncate, normalize and quantize vectors, in this order.

        Args:
            vectors: float32, shape (..., d).

        Returns:
            Shape (..., truncate_dim), or (..., ceil(truncate_dim / 8)) for packed bits.

        Raises:
            InputError: If the vectors are shorter than ``truncate_dim``.
        """
        vectors = truncate_vectors(vectors, self.truncate_dim)
        return quantize_vectors(normalize_vectors(vectors) if self.normalize_embeddings else vectors, self.precision)


def truncate_vectors(vectors: Vectors, truncate_dim: int | None) -> Vectors:
    """Truncate vectors to their first dimensions.

    Args:
        vectors: Shape (..., d).
        truncate_dim: Number of dimensions to keep, at least 1; None keeps all.

    Returns:
        A view of shape (..., truncate_dim).

    Raises:
        InputError: If ``truncate_dim`` is larger than d.
    """
    if truncate_dim is not None and truncate_dim > vectors.shape[-1]:
        raise InputError(
            f"truncate_dim={truncate_dim}, but the vectors have {vectors.shape[-1]} dimensions. Choose at most that."
        )
    return vectors[..., :truncate_dim]


def normalize_vectors(vectors: Any) -> NDArray[Any]:
    """Scale vectors to length 1; zero vectors stay zero.

    Args:
        vectors: Numbers, shape (..., d).

    Returns:
        A new array of the same shape: float64 for float64, else float32, because integers and half precision hold no directions.
    """
    array = as_float_vectors(vectors)
    return np.asarray(array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), MIN_NORM), dtype=array.dtype)


def as_float_vectors(vectors: Any) -> NDArray[Any]:
    """Convert vectors to float32, and reject uint8; float32 and float64 stay as they are, with an array's subclass."""
    array: NDArray[Any] = np.asanyarray(vectors)
    if array.dtype == np.uint8:
        raise InputError(
            "The vectors are uint8, whose values are shifted or packed bits. Undo precision='uint8' with "
            "vectors.astype('int16') - 128, and 'ubinary' with numpy.unpackbits(vectors, axis=-1) * 2.0 - 1."
        )
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def add_vectors(first: NDArray[Any], second: NDArray[Any], min_relative_sum: float = MIN_RELATIVE_SUM) -> NDArray[Any]:
    """Add vectors; a sum that is only rounding becomes exactly zero, so that scaling it to length 1 does not invent a direction.

    Args:
        first: float, shape (..., d).
        second: float, shape (..., d); negative to subtract.
        min_relative_sum: Length below which a sum is rounding, relative to the longer summand.

    Returns:
        The sums, of the same shape; zero where they are only rounding.
    """
    first, second = np.asarray(first), np.asarray(second)
    sums = first + second
    lengths, first_lengths, second_lengths = (np.linalg.norm(array, axis=-1, keepdims=True) for array in (sums, first, second))
    sums[(lengths < min_relative_sum * np.maximum(first_lengths, second_lengths))[..., 0]] = 0
    return np.asarray(sums)


def check_finite(vectors: V) -> V:
    """Check for NaN and infinite values.

    Args:
        vectors: float32, shape (m, n, d) or (n, d), of n texts.

    Returns:
        The same array.

    Raises:
        ModelError: If a text has such a value.
    """
    bad_rows = np.flatnonzero(~np.isfinite(vectors).all(axis=(*range(vectors.ndim - 2), -1)))
    if len(bad_rows):
        raise ModelError(
            f"The model gave NaN or infinite values for {len(bad_rows)} of {vectors.shape[-2]} texts (first: text "
            f"{bad_rows[0]}). Load it with dtype='float32'."
        )
    return vectors


def concatenate_vectors(first: Vectors, second: Vectors) -> Vectors:
    """Concatenate two models' vectors of the same texts, so that a cosine is the mean of both models' cosines.

    Args:
        first: float32, shape (..., d).
        second: float32, shape (..., k).

    Returns:
        The normalized vectors, shape (..., d + k).
    """
    return np.concatenate([normalize_vectors(first), normalize_vectors(second)], axis=-1)


def compute_row_cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the cosine of each row of ``a`` with the same row of ``b``; 0 if one of them is zero.

    Args:
        a: Shape (n, d).
        b: Shape (n, d).

    Returns:
        Shape (n,).
    """
    cosines: NDArray[np.float64] = (normalize_vectors(a.astype(np.float64)) * normalize_vectors(b.astype(np.float64))).sum(axis=1)
    return cosines


def similarity(a: Any, b: Any) -> Vectors:
    """Compute the matrix of cosine similarities.

    Args:
        a: Vectors, float or int8, shape (n, d) or (d,).
        b: Vectors, float or int8, shape (m, d) or (d,).

    Returns:
        float32, shape (n, m); 0 for a zero vector.

    Raises:
        InputError: If vectors are uint8, or their lengths differ.

    Example:
        >>> from inbedder import InBedder
        >>> InBedder.similarity([[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]).tolist()
        [[0.0, 1.0]]
    """
    rows, columns = _normalize_sides(a, b)
    return np.asarray(np.clip(rows @ columns.T, -1, 1), dtype=np.float32)


def similarity_pairwise(a: Any, b: Any) -> Vectors:
    """Compute the cosine similarity of each pair of rows.

    Args:
        a: Vectors, float or int8, shape (n, d) or (d,).
        b: Vectors, float or int8, shape (n, d) or (d,).

    Returns:
        float32, shape (n,); 0 for a zero vector.

    Raises:
        InputError: If vectors are uint8, or their numbers or lengths differ.

    Example:
        >>> from inbedder import InBedder
        >>> InBedder.similarity_pairwise([[1.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]).tolist()
        [0.0, 1.0]
    """
    first, second = _normalize_sides(a, b)
    if len(first) != len(second):
        raise InputError(f"{len(first)} and {len(second)} vectors do not make pairs. similarity compares all with all.")
    return np.asarray(np.clip((first * second).sum(axis=1), -1, 1), dtype=np.float32)


def _normalize_sides(a: Any, b: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scale the vectors of two sides to length 1, shapes (n, d) and (m, d); reject different d."""
    first, second = (normalize_vectors(np.atleast_2d(as_float_vectors(side))) for side in (a, b))
    if first.shape[1] != second.shape[1]:
        raise InputError(f"Vectors of {first.shape[1]} and {second.shape[1]} dimensions cannot be compared. Embed both alike.")
    return first, second


def pack_vector(vector: Vectors) -> bytes | None:
    """Serialize a vector as little-endian float32; None if it contains NaN or an infinite number."""
    return vector.astype("<f4").tobytes() if np.isfinite(vector).all() else None


def unpack_vector(data: bytes) -> Vectors:
    """Deserialize a vector of ``pack_vector``."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
