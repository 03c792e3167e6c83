"""Weights of the base encoder's vectors, for questions about the whole text.

For a question such as "What is it about?", an embedding model that reads the text without a question (the base encoder)
represents the answer better than a few answer words. If a model was trained towards the vectors of its base encoder, its answers
show which questions these are: their vectors are close to the base encoder's. Over the eight probe texts, the mean cosine is
about 0.8 for "What are people discussing?" and at most 0.6 for questions about a product, a feeling, a place or a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from inbedder.vectors import Vectors, add_vectors, compute_row_cosines, normalize_vectors

PROBES = (
    "The flight was delayed by three hours and nobody told us why.",
    "I love the new phone, the camera is amazing.",
    "Parliament passed the budget after a long debate.",
    "How do I reset my password?",
    "We boiled the pasta and made a sauce of tomatoes and basil.",
    "The patients who were given the drug slept better than those who were not.",
    "My dog is sick and I am so worried about him.",
    "The team lost the final in extra time.",
)
"""Short texts of different kinds, on which each question is tested."""
MIN_COSINE, FULL_COSINE = 0.65, 0.75
"""Mean cosines up to which the weight is 0 and from which it is ``MAX_WEIGHT``; it is linear in between."""
MAX_WEIGHT = 2.0
"""Maximum weight of the base encoder's vector, relative to the answer's vector (both of length 1)."""
MAX_CACHED_QUESTIONS = 4096
"""Maximum number of instructions whose weight is cached."""


class BaseEncoder(Protocol):
    """A model that embeds texts without an instruction."""

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool) -> Vectors:
        """Embed n texts: shape (n, d)."""


class BaseWeights:
    """The weight of the base encoder's vectors under each instruction, computed once per instruction."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._weights: dict[str, float] = {}

    def find_weights(
        self, instructions: set[str], embed: Callable[[Sequence[str], Sequence[str]], Vectors], base_encoder: BaseEncoder
    ) -> dict[str, float]:
        """Return the weight of each instruction, computing those that are not cached.

        Args:
            instructions: The instructions.
            embed: Embeds n texts under one instruction each, shape (n, d).
            base_encoder: Embeds texts without an instruction.

        Returns:
            Weights from 0 to ``MAX_WEIGHT``, by instruction.
        """
        cached_weights = {instruction: self._weights.get(instruction) for instruction in instructions}
        weights = {instruction: weight for instruction, weight in cached_weights.items() if weight is not None}
        if new := sorted(instructions - weights.keys()):
            base_vectors = base_encoder.encode(PROBES, show_progress_bar=False)
            for instruction in new:  # one per batch: in 16 bits a weight would depend slightly on the others in its batch
                weights[instruction] = compute_base_weight(embed(PROBES, [instruction] * len(PROBES)), base_vectors)
            self._weights.update({instruction: weights[instruction] for instruction in new})
            for instruction in list(self._weights)[:-MAX_CACHED_QUESTIONS]:  # a server gets an unlimited number of questions
                self._weights.pop(instruction, None)
        return weights


def compute_base_weight(instructed_vectors: Vectors, base_vectors: Vectors) -> float:
    """Compute the weight of the base encoder's vectors under a question.

    Args:
        instructed_vectors: The probes' vectors under the question, shape (8, d).
        base_vectors: Their vectors without a question, shape (8, d).

    Returns:
        From 0 to ``MAX_WEIGHT``.
    """
    mean_cosine = float(compute_row_cosines(instructed_vectors, base_vectors).mean())
    return MAX_WEIGHT * float(np.clip((mean_cosine - MIN_COSINE) / (FULL_COSINE - MIN_COSINE), 0, 1))


def add_base_vectors(instructed_vectors: Vectors, base_vectors: Vectors, weights: Vectors) -> Vectors:
    """Add weighted vectors of the base encoder to instructed vectors.

    Args:
        instructed_vectors: Vectors under a question, shape (..., d).
        base_vectors: Vectors without a question, shape (..., d).
        weights: Weights of the base vectors, shape (..., 1); those of the instructed vectors are 1.

    Returns:
        float32, shape (..., d): sums of length 1; where the weight is 0, the instructed vector unchanged.
    """
    sums = add_vectors(normalize_vectors(instructed_vectors), weights * normalize_vectors(base_vectors))
    return np.where(weights > 0, normalize_vectors(sums), instructed_vectors).astype(np.float32)
