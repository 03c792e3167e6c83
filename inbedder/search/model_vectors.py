"""Vectors and scores of the model that an index was built with."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.embedder import InBedder
from inbedder.encoding.guided import encode_general, has_two_layers
from inbedder.errors import InputError
from inbedder.option_types import FormatKwargs
from inbedder.prompting.templates import resolve_instruction
from inbedder.search.arrow import to_matrix
from inbedder.search.index_rows import INSTRUCTED
from inbedder.vectors.vectors import Vectors, compute_row_cosines, normalize_vectors

ADVICE = "Pass the model that it was built with, or build a new index."


def with_cache(model: InBedder, folder: Path) -> InBedder:
    """Return the same model with a cache.

    Args:
        model: A model; one that has a cache keeps it.
        folder: The folder of the new cache.

    Returns:
        The model, its weights shared; without a cache where the folder cannot be written.
    """
    if model.pipeline.store is not None or model.revision == "unknown":
        return model
    try:
        return model.replace(cache=folder)
    except InputError:  # the index is read-only
        return model


def encode_generic(model: InBedder, texts: Sequence[str], show_progress_bar: bool | None = None) -> Vectors:
    """Encode texts without an instruction, with the model's base encoder where it has one.

    Args:
        model: The model.
        texts: n texts.
        show_progress_bar: Whether to show a progress bar; None shows one in a terminal.

    Returns:
        float32 of length 1, shape (n, k).
    """
    return normalize_vectors(model.encode(list(texts), precision="float32", show_progress_bar=show_progress_bar))


def encode_two_layers(
    model: InBedder, texts: Sequence[str], show_progress_bar: bool | None = None
) -> tuple[Vectors, Vectors | None]:
    """Encode texts without an instruction, in one pass also by an earlier layer, which ``Index.ask`` estimates from.

    Args:
        model: The model.
        texts: n texts.
        show_progress_bar: Whether to show a progress bar; None shows one in a terminal.

    Returns:
        The vectors of ``encode_generic``, and those of the earlier layer, float32, shape (n, k); None if the model has no base
        encoder, or its vectors are to be short.
    """
    if not has_two_layers(model) or model.options.encoding.truncate_dim is not None:
        return encode_generic(model, texts, show_progress_bar), None
    vectors = encode_general(model, list(texts), precision="float32", show_progress_bar=show_progress_bar)
    generic, earlier = np.hsplit(vectors, 2)
    return normalize_vectors(generic), earlier


def encode_instructed(
    model: InBedder, texts: Sequence[str], instruction: str, show_progress_bar: bool | None = None, *, answers: bool = False
) -> Vectors:
    """Encode texts under an instruction.

    Args:
        model: The model.
        texts: n texts.
        instruction: A question, or ``@name``.
        show_progress_bar: Whether to show a progress bar; None shows one in a terminal.
        answers: Whether the same pass also answers, if the model can, so that the cache has the answers.

    Returns:
        float32 of length 1, shape (n, d).
    """
    options: FormatKwargs = {"precision": "float32", "show_progress_bar": show_progress_bar}
    question = resolve_instruction(instruction)
    if answers and model.backbone.answers:
        return normalize_vectors(model.encode(list(texts), question, return_answers=True, **options)[0])
    return normalize_vectors(model.encode(list(texts), question, **options))


def name_column(instruction: str) -> str:
    """Name the column of the vectors under an instruction by a hash of its question."""
    return INSTRUCTED + blake2b(resolve_instruction(instruction).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def score_texts(
    model: InBedder, query: str, texts: Sequence[str], instruction: str, stored_vectors: Any = None
) -> NDArray[np.float64]:
    """Score texts by their similarity to a query under an instruction.

    Args:
        model: The model.
        query: The text to search for.
        texts: n texts.
        instruction: A question, or ``@name``.
        stored_vectors: A pyarrow column of the texts' vectors under the instruction, null for those not stored; only the latter
            are encoded. None encodes all.

    Returns:
        Cosines, shape (n,).
    """
    missing = [row for row in range(len(texts)) if stored_vectors is None or not stored_vectors[row].is_valid]
    encoded = encode_instructed(model, [query, *(texts[row] for row in missing)], instruction, False)
    vectors = np.empty((len(texts), encoded.shape[1]), dtype=np.float32)
    if stored_vectors is not None:
        vectors[np.setdiff1d(np.arange(len(texts)), missing)] = to_matrix(stored_vectors.drop_null())
    vectors[missing] = encoded[1:]
    return compute_row_cosines(vectors, np.broadcast_to(encoded[0], vectors.shape))
