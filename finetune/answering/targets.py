"""What vectors are drawn to: a frozen re-encoder's vectors of the answers, and teachers' vectors of the same rows.

Where widths differ, vectors are carried over by a fixed orthonormal map: cosines between them stay as they are in a wider model
and nearly so in a narrower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from finetune.answering.rows import Row
from finetune.sources import UNASKED
from inbedder.cache import Store
from inbedder.embedder import InBedder
from inbedder.errors import RecipeError
from inbedder.reencode import reencode
from inbedder.vectors import Vectors


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
    return torch.from_numpy(_carried_over(np.asarray(reencode(drawn_to, reencoder, store=store)), width)).half()


def taught_by(teachers: Sequence[str], rows: Sequence[Row], width: int, cache: str | None = None) -> Tensor:
    """Teachers' vectors of rows, of length 1 and added up, in the model's width.

    Args:
        teachers: Models, as ``InBedder`` takes them, whose vectors lie in one space once they have one width.
        rows: Texts, their instructions, and what teachers are asked in their place.
        width: d of the model that learns.
        cache: Folder that keeps the teachers' vectors; None keeps none.

    Returns:
        float16, one row per row, shape (n, width); zeros for rows that are not taught.
    """
    total = np.zeros((len(rows), width), dtype=np.float32)
    unasked = [number for number, row in enumerate(rows) if row.taught_as == UNASKED]
    asked = [number for number, row in enumerate(rows) if row.taught_as not in ("", UNASKED)]
    questions = [rows[number].taught_as or rows[number].instruction for number in asked]
    for teacher in teachers:
        model = InBedder(teacher, add_generic=False, cache=None if cache is None else Path(cache).expanduser())
        for taught, instructions in ((asked, questions), (unasked, None)):
            if taught:
                vectors = model.encode([rows[number].text for number in taught], instructions, normalize_embeddings=True)
                total[taught] += _carried_over(np.asarray(vectors), width)
    return torch.from_numpy(total).half()


def instructions_alone(model: str, rows: Sequence[Row], width: int) -> Tensor:
    """Vectors of the rows' instructions with an empty text: what ``subtract_instruction`` takes away.

    Args:
        model: As ``InBedder`` takes it.
        rows: Whose instructions.
        width: d of the model that learns.

    Returns:
        float16, one row per row, shape (n, width).

    Raises:
        RecipeError: When the model has another width.
    """
    places: dict[str, int] = {}
    own = [places.setdefault(row.instruction, len(places)) for row in rows]
    vectors = np.asarray(InBedder(model, subtract_instruction=False, beside="none").encode([""] * len(places), list(places)))
    if vectors.shape[1] != width:
        raise RecipeError(
            f"objective.subtract: {model} has vectors of {vectors.shape[1]} numbers, the model that learns of {width}. "
            "Name the model that it starts from."
        )
    return torch.from_numpy(vectors).half()[own]


def _carried_over(vectors: Vectors, width: int) -> Vectors:
    return vectors if vectors.shape[1] == width else vectors @ orthonormal(vectors.shape[1], width)


def orthonormal(rows: int, columns: int, seed: int = 0) -> Vectors:
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
