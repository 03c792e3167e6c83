"""Contrast triplets: does the instruction decide which of two texts is the closer one?

For a corpus with two label columns A and B, a triplet is an anchor, a text that shares the anchor's A but not its B, and a
text that shares its B but not its A. Under A's instruction the first must be closer, under B's the second: an embedder that
ignores instructions is right about one exactly where it is wrong about the other. This generalises IntentEmotion (InBedder
paper, section 3.2) to any corpus with two criteria; the score is, as there, the harmonic mean of both success rates.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError

Encode = Callable[[Sequence[str], str], NDArray[np.float32]]


@dataclass(frozen=True)
class ContrastScores:
    """Shares of triplets, in percent."""

    first: float
    """Success under the first criterion's instruction."""
    second: float
    """Success under the second criterion's instruction."""

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of both, 0 when one is 0."""
        total = self.first + self.second
        return 2 * self.first * self.second / total if total else 0.0


def draw_triplets(first: Sequence[str], second: Sequence[str], count: int = 4000, seed: int = 0) -> NDArray[np.int64]:
    """Draw triplets of row numbers.

    Args:
        first: Label of each row under the first criterion, n strings.
        second: Label of each row under the second criterion, n strings.
        count: How many triplets.
        seed: Seed of the draw.

    Returns:
        Shape (count, 3): anchor, same first but other second, other first but same second.

    Raises:
        InputError: When no anchor has both kinds of counterparts.
    """
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, cell in enumerate(zip(first, second, strict=True)):
        cells[cell].append(row)
    like_first = {a: [key for key in cells if key[0] == a] for a in set(first)}
    like_second = {b: [key for key in cells if key[1] == b] for b in set(second)}
    usable = [cell for cell in cells if len(like_first[cell[0]]) > 1 and len(like_second[cell[1]]) > 1]
    anchors = sorted(row for cell in usable for row in cells[cell])
    if not anchors:
        raise InputError("No contrast triplet can be drawn: each criterion must vary while the other is held fixed.")
    draw = random.Random(seed)
    triplets = []
    for _ in range(count):
        anchor = draw.choice(anchors)
        a, b = first[anchor], second[anchor]
        same_a = [row for cell in like_first[a] if cell[1] != b for row in cells[cell]]
        same_b = [row for cell in like_second[b] if cell[0] != a for row in cells[cell]]
        triplets.append((anchor, draw.choice(same_a), draw.choice(same_b)))
    return np.asarray(triplets, dtype=np.int64)


def score_triplets(
    texts: Sequence[str], triplets: NDArray[np.int64], encode: Encode, instructions: tuple[str, str]
) -> ContrastScores:
    """Success rates of an embedder.

    Args:
        texts: The corpus, n texts.
        triplets: As ``draw_triplets`` gives them.
        encode: Texts and an instruction to vectors, shape (n, d); compared by cosine.
        instructions: The first and the second criterion's.

    Returns:
        The scores, in percent.
    """
    used = np.unique(triplets)
    rows = np.searchsorted(used, triplets)
    chosen = [texts[i] for i in used]
    rates = []
    for instruction, closer, farther in ((instructions[0], 1, 2), (instructions[1], 2, 1)):
        vectors = encode(chosen, instruction)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        anchor, near, far = vectors[rows[:, 0]], vectors[rows[:, closer]], vectors[rows[:, farther]]
        rates.append(100 * float(np.mean((anchor * near).sum(1) > (anchor * far).sum(1))))
    return ContrastScores(first=rates[0], second=rates[1])
