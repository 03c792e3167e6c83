"""From prompts to vectors: pooled states are combined, sampled answers are re-encoded, and the answer head reads words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from inbedder.backbones.protocol import check_answers
from inbedder.backbones.transformer import select_distinct_words
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.encoding.reencode import ReencodedVectors, check_encoder, reencode
from inbedder.vectors import Vectors, normalize_vectors

if TYPE_CHECKING:
    from inbedder.encoding.parts import Parts


def embed_states(
    parts: Parts,
    texts: Sequence[str],
    questions: Sequence[tuple[str, ...]],
    filter_words: Sequence[str],
    run_options: RunOptions,
    normalize: bool,
) -> Vectors:
    """Embed texts by their pooled states.

    Args:
        parts: The model.
        texts: n texts, n at least 1.
        questions: n tuples of m questions.
        filter_words: Words whose hidden states are left out.
        run_options: Batch size and progress bar.
        normalize: Whether to scale the vectors to length 1.

    Returns:
        float32, shape (m, n, d).
    """
    pooled = parts.runner.pool(texts, questions, filter_words, run_options)
    vectors = parts.combiner.combine(pooled, texts, questions, filter_words, run_options)
    return normalize_vectors(vectors) if normalize else vectors


def embed_answers(
    parts: Parts,
    texts: Sequence[str],
    instructions: Sequence[str],
    filter_words: Sequence[str],
    run_options: RunOptions,
    normalize: bool,
) -> ReencodedVectors:
    """Embed texts by the mean vectors of their sampled answers.

    Args:
        parts: The model.
        texts: n texts.
        instructions: n instructions.
        filter_words: Must be empty.
        run_options: Batch size and progress bar.
        normalize: Whether to scale the vectors to length 1.

    Returns:
        float32, shape (n, d).
    """
    encoding, device = parts.options.encoding, str(parts.backbone.model.device)
    assert encoding.reencoding is not None
    sampling = encoding.reencoding.make_sampling(encoding.sampling.max_new_tokens, filter_words)
    check_encoder(encoding.reencoding.encoder, store=parts.store, device=device)
    check_answers(parts.backbone, parts.options.model.model)
    answers = parts.runner.answer(texts, instructions, sampling, run_options)
    vectors = reencode(answers, encoding.reencoding.encoder, store=parts.store, device=device)
    if normalize:
        vectors[...] = normalize_vectors(vectors)
    return vectors


def decode_words(parts: Parts, vectors: Vectors, top: int, get_dimension: Callable[[], int]) -> list[list[str]]:
    """Decode vectors with the model's answer head.

    Args:
        parts: The model.
        vectors: float32, shape (m, d).
        top: Maximum number of words per vector.
        get_dimension: Returns the length of the model's vectors.

    Returns:
        The likeliest words of each vector; empty lists if the head does not read such vectors.
    """
    encoding, backbone = parts.options.encoding, parts.backbone
    is_last = encoding.layer in (-1, backbone.num_layers)
    if not is_last or encoding.pooling in ("avg-ppt", "re-enc") or not backbone.answers:
        return [[] for _ in vectors]
    if (second_model := parts.combiner.second_model) is not None:  # the head reads only this model's states
        if vectors.shape[1] != get_dimension():  # no head reads general-purpose vectors
            return [[] for _ in vectors]
        vectors = np.ascontiguousarray(vectors[:, : -second_model.dimension])
    return [select_distinct_words(words, top) for words in backbone.read_vectors(torch.from_numpy(vectors), 5 * top)]
