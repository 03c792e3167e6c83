"""The precision of finished vectors: float32, 8-bit integers, or bits, by sentence-transformers' names.

numpy is imported on use, because ``inbedder --help`` reads this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbedder.errors import InputError, format_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRECISIONS = {"float32": "float32", "int8": "int8", "uint8": "uint8", "binary": "int8", "ubinary": "uint8"}
"""The dtype of the vectors, by their precision."""


def check_precision(name: str, value: Any) -> str:
    """Check a precision: a key of ``PRECISIONS``."""
    if not isinstance(value, str) or value not in PRECISIONS:
        raise InputError(f"Unknown {name} {format_value(value)}. Choose one of: {', '.join(PRECISIONS)}.")
    return value


def quantize_vectors(vectors: NDArray[Any], precision: str) -> NDArray[Any]:
    """Store vectors in fewer bits. A vector's result does not depend on the other vectors.

    Args:
        vectors: float, shape (..., d).
        precision: "int8" scales each vector so that its largest number is 127 or -127, and rounds: cosines stay, lengths are
            lost. "uint8" is int8 plus 128. "ubinary" packs the signs of eight numbers into a byte (1 for a number above 0), as
            sentence-transformers does; "binary" is ubinary minus 128. "float32" changes nothing.

    Returns:
        int8 or uint8, shape (..., d), or (..., ceil(d / 8)) for packed bits.

    Raises:
        InputError: If the precision is unknown.

    Example:
        >>> import numpy as np
        >>> from inbedder.vectors.precision import quantize_vectors
        >>> quantize_vectors(np.array([[0.3, -0.6, 0.0]]), "int8").tolist()
        [[64, -127, 0]]
    """
    import numpy as np

    if check_precision("precision", precision) == "float32":
        return vectors
    if precision.endswith("binary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    integers = np.rint(vectors / np.where(largest == 0, 1, largest) * 127)
    return integers.astype(np.int8) if precision == "int8" else (integers + 128).astype(np.uint8)
