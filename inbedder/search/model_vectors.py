"""The vectors of an index's model."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.prompting.templates import resolve_instruction
from inbedder.search.index_rows import INSTRUCTED
from inbedder.vectors import Vectors, row_cosines, unit

ADVICE = "Pass the model that it was built with, or build a new index."


def with_cache(model: InBedder, folder: Path) -> InBedder:
    """Return the same model with a cache.

    Args:
        model: A model; one that has a cache keeps it.
        folder: Where the cache is otherwise.

    Returns:
        The model, its weights shared; without a cache where the folder cannot be written.
    """
    if model.store is not None or model.revision == "unknown":
        return model
    try:
        return model.replace(cache=folder)
    except InputError:  # the index can be read and not written to
        return model


def generic_vectors(model: InBedder, texts: Sequence[str], show_progress_bar: bool | None = None) -> Vectors:
    """Vectors that know no instruction: of the model's base, where it has one.

    Args:
        model: The model.
        texts: n texts.
        show_progress_bar: As for ``InBedder.encode``.

    Returns:
        float32 of length 1, shape (n, k).
    """
    return unit(model.encode(list(texts), show_progress_bar=show_progress_bar))


def instructed_vectors(model: InBedder, texts: Sequence[str], instruction: str, show_progress_bar: bool | None = None) -> Vectors:
    """Vectors under an instruction.

    Args:
        model: The model.
        texts: n texts.
        instruction: A question, or ``@name``.
        show_progress_bar: As for ``InBedder.encode``.

    Returns:
        float32 of length 1, shape (n, d).
    """
    return unit(model.encode(list(texts), resolve_instruction(instruction), show_progress_bar=show_progress_bar))


def column_of(instruction: str) -> str:
    """Name the column of the vectors under an instruction by a hash of its question."""
    return INSTRUCTED + blake2b(resolve_instruction(instruction).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def instructed_scores(model: InBedder, query: str, texts: Sequence[str], instruction: str) -> NDArray[np.float64]:
    """How near texts are to a query in what is asked.

    Args:
        model: The model.
        query: What is searched for.
        texts: n texts.
        instruction: A question, or ``@name``.

    Returns:
        Cosines, shape (n,).
    """
    vectors = instructed_vectors(model, [query, *texts], instruction, False)
    return row_cosines(vectors[1:], np.broadcast_to(vectors[0], vectors[1:].shape))
