"""The vectors of instructions on their own, which are subtracted from those of the texts.

    v(x, i) = s(x, i) - s("", i)

with s(x, i) the pooled states of text x under instruction i. A difference that is only rounding is exactly zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inbedder.vectors.vectors import Vectors, add_vectors

MAX_CACHED_INSTRUCTIONS = 1024
"""Maximum number of instructions whose own vector is cached."""
PoolEmptyText = Callable[[Sequence[str]], Vectors]
"""A function that pools the states of an empty text under each of m instructions: float32, shape (m, d)."""


class InstructionVectors:
    """The vectors s("", i) of instructions on their own, computed once per instruction."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._vectors: dict[tuple[str, ...], Vectors] = {}

    def subtract(
        self,
        vectors: Vectors,
        instructions: Sequence[tuple[str, ...]],
        filter_words: Sequence[str],
        no_instruction: str,
        min_relative_difference: float,
        pool_empty_text: PoolEmptyText,
    ) -> None:
        """Subtract each instruction's own vector, in place.

        Args:
            vectors: Pooled states, float32, shape (m, n, d).
            instructions: n tuples of m instructions.
            filter_words: Words whose hidden states were left out.
            no_instruction: The instruction of calls without one; its own vector is never subtracted.
            min_relative_difference: Length below which a text's difference from its instruction is rounding of the states.
            pool_empty_text: Computes the vectors that are not cached.
        """
        distinct_instructions = {instruction for row in instructions for instruction in row} - {no_instruction}
        own_vectors = self._find(distinct_instructions, filter_words, pool_empty_text)
        for number in range(len(vectors)):
            rows = [row for row, row_instructions in enumerate(instructions) if row_instructions[number] in own_vectors]
            if rows:
                subtracted = np.stack([own_vectors[instructions[row][number]] for row in rows])
                vectors[number, rows] = add_vectors(vectors[number, rows], -subtracted, min_relative_difference)

    def _find(self, instructions: set[str], filter_words: Sequence[str], pool_empty_text: PoolEmptyText) -> dict[str, Vectors]:
        """Return the vector of each instruction."""
        keys = {instruction: (instruction, *filter_words) for instruction in instructions}
        cached_vectors = {instruction: self._vectors.get(key) for instruction, key in keys.items()}
        vectors = {instruction: vector for instruction, vector in cached_vectors.items() if vector is not None}
        if new := sorted(instructions - vectors.keys()):
            vectors |= zip(new, pool_empty_text(new), strict=True)
            self._vectors.update({keys[instruction]: vectors[instruction] for instruction in new})
            for key in list(self._vectors)[:-MAX_CACHED_INSTRUCTIONS]:  # a server gets an unlimited number of instructions
                self._vectors.pop(key, None)
        return vectors
