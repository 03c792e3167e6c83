"""From prompts to vectors: pooled states are combined, sampled answers are re-encoded, and the answer head reads words.

Both kinds of vectors are then truncated, normalised and quantized (``VectorFormat``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from inbedder.backbones.protocol import check_answers
from inbedder.backbones.transformer import select_distinct_words
from inbedder.encoding.default_options import check_truncate_dim
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.reencode import ReencodedVectors, check_encoder, reencode
from inbedder.vectors.precision import check_precision
from inbedder.vectors.vectors import VectorFormat, Vectors

if TYPE_CHECKING:
    from inbedder.encoding.parts import Parts


def choose_format(parts: Parts, normalize_embeddings: bool, truncate_dim: int | None, precision: str) -> VectorFormat:
    """Choose the format of vectors from the arguments of ``encode`` and the model's options.

    Args:
        parts: The model.
        normalize_embeddings: Whether the caller wants vectors of length 1; the model may always return them.
        truncate_dim: The caller's length of vectors; None takes the model's.
        precision: The precision of the vectors.

    Returns:
        The format, checked.

    Raises:
        InputError: When the model's vectors cannot be truncated, or an argument is out of range.
    """
    encoding = parts.options.encoding
    if truncate_dim is None:
        truncate_dim = encoding.truncate_dim
    else:
        check_truncate_dim(truncate_dim, encoding.beside, parts.backbone, parts.settings, parts.options.model.model)
    normalize = normalize_embeddings or bool(encoding.normalize)
    return VectorFormat(truncate_dim, normalize, check_precision("precision", precision))


def embed_states(
    parts: Parts,
    texts: Sequence[str],
    questions: Sequence[tuple[str, ...]],
    filter_words: Sequence[str],
    run_options: RunOptions,
    vector_format: VectorFormat,
) -> Vectors:
    """Embed texts by their pooled states.

    Args:
        parts: The model.
        texts: n texts, n at least 1.
        questions: n tuples of m questions.
        filter_words: Words whose hidden states are left out.
        run_options: Batch size and progress bar.
        vector_format: Length, normalisation and precision of the vectors.

    Returns:
        Shape (m, n, d), in the dtype of the precision.
    """
    pooled = parts.runner.pool(texts, questions, filter_words, run_options)
    vectors: Vectors = vector_format.apply(parts.combiner.combine(pooled, texts, questions, filter_words, run_options))
    return vectors


def embed_answers(
    parts: Parts,
    texts: Sequence[str],
    instructions: Sequence[str],
    filter_words: Sequence[str],
    run_options: RunOptions,
    vector_format: VectorFormat,
) -> ReencodedVectors:
    """Embed texts by the mean vectors of their sampled answers.

    Args:
        parts: The model.
        texts: n texts.
        instructions: n instructions.
        filter_words: Must be empty.
        run_options: Batch size and progress bar.
        vector_format: Length, normalisation and precision of the vectors.

    Returns:
        Shape (n, d), in the dtype of the precision.
    """
    encoding, device = parts.options.encoding, str(parts.backbone.model.device)
    assert encoding.reencoding is not None
    sampling = encoding.reencoding.make_sampling(encoding.sampling.max_new_tokens, filter_words)
    check_encoder(encoding.reencoding.encoder, store=parts.store, device=device)
    check_answers(parts.backbone, parts.options.model.model)
    answers = parts.runner.answer(texts, instructions, sampling, run_options)
    texts_of_answers = [[answer.text for answer in row] for row in answers]  # no vector depends on min_confidence
    vectors = reencode(texts_of_answers, encoding.reencoding.encoder, store=parts.store, device=device)
    reencoded: ReencodedVectors = vectors.with_values(vector_format.apply(vectors))
    return reencoded


def decode_words(parts: Parts, vectors: Vectors, top: int, get_dimension: Callable[[], int]) -> list[list[str]]:
    """Decode vectors with the model's answer head.

    Args:
        parts: The model.
        vectors: float32, shape (m, d).
        top: Maximum number of words per vector.
        get_dimension: Returns the length of the model's vectors.

    Returns:
        The likeliest words of each vector; empty lists if the head does not read such vectors, as truncated ones.
    """
    encoding, backbone = parts.options.encoding, parts.backbone
    is_last = encoding.layer in (-1, backbone.num_layers)
    is_whole = is_last and encoding.truncate_dim is None
    if not is_whole or encoding.pooling in ("avg-ppt", "re-enc") or not backbone.answers:
        return [[] for _ in vectors]
    if (second_model := parts.combiner.second_model) is not None:  # the head reads only this model's states
        if vectors.shape[1] != get_dimension():  # no head reads general-purpose vectors
            return [[] for _ in vectors]
        vectors = np.ascontiguousarray(vectors[:, : -second_model.dimension])
    return [select_distinct_words(words, top) for words in backbone.read_vectors(torch.from_numpy(vectors), 5 * top)]
