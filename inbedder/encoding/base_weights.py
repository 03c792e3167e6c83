"""Questions about the whole text: the text's own vector is added to that of the answer.

What a text is about, or which problem a paper addresses, the whole text says, and the embedding model that reads it without a
question (``base_encoder``) says it better than the few words of an answer can. A model that was trained towards the vectors of
that base shows which questions these are: its answers to them lie near the texts' own vectors. The mean cosine over eight texts
of different kinds is about 0.8 for "What are people discussing?" and at most 0.6 for questions about a product, a feeling, a
place or a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from inbedder.vectors import Vectors, compute_row_cosines, normalize_vectors

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
"""Short texts of different kinds, on which each question is tried out."""
MIN_COSINE, FULL_COSINE = 0.65, 0.75
"""Up to the first mean cosine nothing is added, from the second on all; in between the weight grows evenly."""
MAX_WEIGHT = 2.0
"""Weight of a text's own vector under a question about the whole text, that of the answer being 1 (both of length 1)."""

MAX_CACHED_QUESTIONS = 4096
"""Most instructions whose weight is remembered."""


class BaseEncoder(Protocol):
    """A model that reads texts without an instruction."""

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool) -> Vectors:
        """One row per text."""


class BaseWeights:
    """The weight that each instruction gives to a text's own vector, found once per instruction and remembered."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._weights: dict[str, float] = {}

    def find_weights(
        self, instructions: set[str], asked: Callable[[Sequence[str], Sequence[str]], Vectors], generic: BaseEncoder
    ) -> dict[str, float]:
        """How much of a text's own vector each instruction takes; the last ones are remembered.

        Args:
            instructions: The instructions.
            asked: Gives vectors of n texts under one instruction each, shape (n, d).
            generic: Gives vectors of texts without one.

        Returns:
            From 0 to ``MAX_WEIGHT``, by instruction.
        """
        remembered = {instruction: self._weights.get(instruction) for instruction in instructions}
        found = {instruction: weight for instruction, weight in remembered.items() if weight is not None}
        if new := sorted(instructions - found.keys()):
            own = generic.encode(PROBES, show_progress_bar=False)
            for instruction in new:  # one at a time: in 16 bits a weight would depend a little on the others in its batch
                found[instruction] = compute_base_weight(asked(PROBES, [instruction] * len(PROBES)), own)
            self._weights.update({instruction: found[instruction] for instruction in new})
            for instruction in list(self._weights)[:-MAX_CACHED_QUESTIONS]:  # a server meets instructions without end
                self._weights.pop(instruction, None)
        return found


def compute_base_weight(asked: Vectors, generic: Vectors) -> float:
    """How much of the texts' own vectors a question takes.

    Args:
        asked: The probes' vectors under the question, shape (8, d).
        generic: Their vectors without a question, shape (8, d).

    Returns:
        From 0 to ``MAX_WEIGHT``.
    """
    near = float(compute_row_cosines(asked, generic).mean())
    return MAX_WEIGHT * float(np.clip((near - MIN_COSINE) / (FULL_COSINE - MIN_COSINE), 0, 1))


def add_base_vectors(asked: Vectors, generic: Vectors, weights: Vectors) -> Vectors:
    """Vectors with the texts' own added.

    Args:
        asked: Under a question, shape (..., d).
        generic: Without one, shape (..., d).
        weights: Of the second, that of the first being 1, shape (..., 1).

    Returns:
        float32, shape (..., d): of length 1, as generic vectors are; where the weight is 0 the first as it stands.
    """
    return np.where(
        weights > 0, normalize_vectors(normalize_vectors(asked) + weights * normalize_vectors(generic)), asked
    ).astype(np.float32)
