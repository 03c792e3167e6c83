"""Gain from averaging over wordings of a question: V-measure under single wordings and under means of 3 and 5 wordings.

For each seed, ten sets of 3 and ten sets of 5 wordings are sampled from the ten correct instructions of a robustness set, so that
a worst of ten is compared with a worst of ten. The vectors of a set are the mean of the normalized vectors under its wordings.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from statistics import mean

import numpy as np

from inbedder.errors import InputError
from inbedder.grouping.prepare.mean_wordings import average_wordings
from inbedder.vectors.vectors import normalize_vectors
from inbedder_evaluation.metrics import v_measure
from inbedder_evaluation.tasks.robustness import LabelledTexts
from inbedder_evaluation.tasks.task import Encode, Scores, TaskInfo, add_protocol, fingerprint

SIZES = (3, 5)
DRAWN = 10
"""Number of sets of wordings of each size."""


class WordingMeans:
    """Clustering by one criterion, asked for in several wordings."""

    seeded = True

    def __init__(self, data: LabelledTexts, wordings: Sequence[str], protocol: str = "k-means") -> None:
        """Check labelled texts and wordings of the question that asks for their labels.

        Args:
            data: Texts and their labels.
            wordings: At least six wordings.
            protocol: "k-means" or "paper", see ``group_vectors``.

        Raises:
            InputError: If there are too few wordings, or the labels cannot be clustered.
        """
        if len(wordings) <= max(SIZES):
            raise InputError(f"{data.name} has {len(wordings)} wordings; give at least {max(SIZES) + 1}.")
        if not 1 < (classes := len(set(data.labels))) < len(data.texts):
            raise InputError(f"{data.name} has {classes} classes in {len(data.texts)} texts; nothing to group.")
        self.data, self.wordings, self.protocol = data, list(wordings), protocol
        rows = [{"text": text, "label": label} for text, label in zip(data.texts, data.labels, strict=True)]
        self.info = TaskInfo(
            name=add_protocol(f"{data.name} wordings", protocol),
            main_score="mean_of_3_worst",
            source=data.source,
            revision=fingerprint(rows, [self.wordings, SIZES, DRAWN]),
            licence=data.licence,
            citation=data.citation,
        )

    def get_first_input(self) -> tuple[str, str]:
        """Return the first text and the first wording."""
        return self.data.texts[0], self.wordings[0]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute V-measures under single wordings and under means of several.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Seed of k-means and of the sampled sets.

        Returns:
            single_mean and single_worst, mean_of_3_mean and mean_of_3_worst, mean_of_5_mean and mean_of_5_worst, and mean_of_all,
            times 100.
        """
        vectors_by_wording = [encode(self.data.texts, wording) for wording in self.wordings]
        vectors = np.stack([normalize_vectors(wording_vectors) for wording_vectors in vectors_by_wording])

        def score(wordings: Sequence[int]) -> float:
            return v_measure(average_wordings(vectors[list(wordings)])[0], self.data.labels, seed, self.protocol)

        numbers = range(len(vectors_by_wording))
        sets: dict[str, Sequence[Sequence[int]]] = {"single": [[number] for number in numbers]}
        for size in SIZES:
            possible = list(combinations(numbers, size))
            sets[f"mean_of_{size}"] = random.Random(seed).sample(possible, min(DRAWN, len(possible)))
        scores = {"mean_of_all": score(numbers)}
        for name, wording_sets in sets.items():
            ignored = all(
                wording_vectors is vectors_by_wording[0] for wording_vectors in vectors_by_wording
            )  # by an embedder that returns one array for all instructions
            values = [scores["mean_of_all"]] if ignored else [score(wordings) for wordings in wording_sets]
            scores |= {f"{name}_mean": mean(values), f"{name}_worst": min(values)}
        return scores
