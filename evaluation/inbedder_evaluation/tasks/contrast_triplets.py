"""Contrast triplets: does the instruction decide which of two texts is the closer one?

For a corpus with two label columns A and B, a triplet is an anchor, a text that shares the anchor's A but not its B, and a
text that shares its B but not its A. Under A's instruction the first must be closer, under B's the second. An embedder that
ignores instructions succeeds under one exactly when it fails under the other. This generalizes IntentEmotion (InBedder paper,
section 3.2) to any corpus with two criteria; the score is also the harmonic mean of both success rates.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inbedder_evaluation.item_results import Outcomes, compute_success_rates
from inbedder_evaluation.metrics import triplet_wins
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus
from inbedder_evaluation.tasks.task import Encode, NothingToMeasureError, Scores


class ContrastTriplets:
    """Contrast triplets of a corpus with two criteria."""

    seeded = False

    def __init__(self, corpus: TwoCriteriaCorpus, count: int = 4000, seed: int = 0) -> None:
        """Sample the triplets.

        Args:
            corpus: Texts with two labels each, and an instruction per criterion.
            count: Number of triplets.
            seed: Seed of the sample.
        """
        self.corpus = corpus
        self.triplets = draw_triplets(corpus.labels[0], corpus.labels[1], count, seed)
        self.info = corpus.make_task_info("triplets")
        self.get_first_input = corpus.get_first_input

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute success rates under both instructions.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Not used; the triplets are sampled once.

        Returns:
            One success rate per criterion and their harmonic_mean, in percent.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute success rates and the success of each triplet by criterion; triplets of one anchor form one unit."""
        rows, wins = self.triplets, {}
        for number, (criterion, instruction) in enumerate(zip(self.corpus.criteria, self.corpus.instructions, strict=True)):
            vectors = encode(self.corpus.texts, instruction)
            closer, farther = (1, 2) if number == 0 else (2, 1)
            wins[criterion] = triplet_wins(vectors[rows[:, 0]], vectors[rows[:, closer]], vectors[rows[:, farther]])
        return compute_success_rates(wins, dict.fromkeys(wins, rows[:, 0].tolist()))


def draw_triplets(first: Sequence[str], second: Sequence[str], count: int = 4000, seed: int = 0) -> NDArray[np.int64]:
    """Sample triplets of row numbers.

    Args:
        first: Label of each row under the first criterion, n strings.
        second: Label of each row under the second criterion, n strings.
        count: Number of triplets.
        seed: Seed of the sample.

    Returns:
        int64, shape (count, 3): anchor, row with only the first label in common, row with only the second label in common.

    Raises:
        NothingToMeasureError: If no anchor has both kinds of counterpart.
    """
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, cell in enumerate(zip(first, second, strict=True)):
        cells[cell].append(row)
    like_first = {a: [key for key in cells if key[0] == a] for a in set(first)}
    like_second = {b: [key for key in cells if key[1] == b] for b in set(second)}
    usable = [cell for cell in cells if len(like_first[cell[0]]) > 1 and len(like_second[cell[1]]) > 1]
    anchors = sorted(row for cell in usable for row in cells[cell])
    if not anchors:
        raise NothingToMeasureError("No contrast triplet can be drawn: each criterion must vary while the other is held fixed.")
    draw = random.Random(seed)
    triplets = []
    for _ in range(count):
        anchor = draw.choice(anchors)
        a, b = first[anchor], second[anchor]
        same_a = [row for cell in like_first[a] if cell[1] != b for row in cells[cell]]
        same_b = [row for cell in like_second[b] if cell[0] != a for row in cells[cell]]
        triplets.append((anchor, draw.choice(same_a), draw.choice(same_b)))
    return np.asarray(triplets, dtype=np.int64)
