"""What vectors are drawn to: a frozen re-encoder's vectors of the answers, and a teacher's vectors of the same rows.

Where widths differ, vectors are carried over by a fixed orthonormal map: cosines between them stay as they are in a wider model
and nearly so in a narrower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from finetune.answering.rows import Row
from inbedder.cache import Store
from inbedder.embedder import InBedder
from inbedder.reencode import reencode


def reencoded(drawn_to: Sequence[tuple[str, ...]], reencoder: str, width: int, cache: str | None = None) -> Tensor:
    """What vectors are drawn to: the frozen re-encoder's vectors of answers, in the model's width.

    Args:
        drawn_to: m times one answer, or several texts whose mean vector it is.
        reencoder: A sentence-transformers model.
        width: d of the model that learns.
        cache: Folder that keeps the re-encoder's vectors; None keeps none.

    Returns:
        float16, shape (m, width).

    Raises:
        MissingExtraError: When sentence-transformers is not installed.
    """
    store = None if cache is None else Store(Path(cache).expanduser())
    return _carried_over(np.asarray(reencode(drawn_to, reencoder, store=store)), width)


def taught_by(teacher: str, rows: Sequence[Row], width: int, cache: str | None = None) -> Tensor:
    """A teacher's vectors of rows, in the model's width.

    Args:
        teacher: A model, as ``InBedder`` takes it.
        rows: Texts and their instructions.
        width: d of the model that learns.
        cache: Folder that keeps the teacher's vectors; None keeps none.

    Returns:
        float16, one row per row, shape (n, width).
    """
    model = InBedder(teacher, cache=None if cache is None else Path(cache).expanduser())
    vectors = model.encode([row.text for row in rows], [row.instruction for row in rows])
    return _carried_over(np.asarray(vectors), width)


def _carried_over(vectors: np.ndarray[Any, np.dtype[np.float32]], width: int) -> Tensor:
    if vectors.shape[1] != width:
        vectors = vectors @ orthonormal(vectors.shape[1], width)
    return torch.from_numpy(vectors).half()


def orthonormal(rows: int, columns: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A fixed map between widths: orthonormal rows when it widens, orthonormal columns when it narrows.

    Args:
        rows: Width of what is carried over.
        columns: Width that it gets.
        seed: Seed of the draw.

    Returns:
        Shape (rows, columns).
    """
    draw = np.random.default_rng(seed).normal(size=(max(rows, columns), min(rows, columns)))
    basis = np.linalg.qr(draw)[0].astype(np.float32)
    return basis.T if columns > rows else basis
