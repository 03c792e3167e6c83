"""Two-criteria clustering: k-means under each criterion's instruction, against that criterion's labels.

This generalizes NYTClustering (InBedder paper, section 3.2) to any corpus with two label columns. The score is the harmonic mean
of both V-measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbedder_evaluation.item_results import Outcomes
from inbedder_evaluation.metrics import group_vectors, harmonic_mean
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus
from inbedder_evaluation.tasks.task import Encode, NothingToMeasureError, Scores, add_protocol


class CriteriaClustering:
    """Clustering of one corpus under two instructions."""

    seeded = True

    def __init__(self, corpus: TwoCriteriaCorpus, protocol: str = "k-means") -> None:
        """Check that the corpus can be clustered.

        Args:
            corpus: Texts with two labels each, and an instruction per criterion.
            protocol: "k-means" or "paper", see ``group_vectors``.

        Raises:
            NothingToMeasureError: If every text has its own class under a criterion.
        """
        for criterion, labels in zip(corpus.criteria, corpus.labels, strict=True):
            if len(set(labels)) >= len(labels):
                raise NothingToMeasureError(
                    f"{corpus.name}: {criterion!r} has a different class for each of {len(labels)} texts; nothing to group."
                )
        self.corpus = corpus
        self.protocol = protocol
        self.info = corpus.make_task_info(add_protocol("two-criteria clustering", protocol))
        self.get_first_input = corpus.get_first_input

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute the V-measures under both instructions.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Seed of k-means.

        Returns:
            One V-measure per criterion and their harmonic_mean, times 100.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute the V-measures, and the group and label of each text under each criterion; a text is one unit."""
        return evaluate_criteria(self.corpus, self.corpus.instructions, encode, seed, self.protocol)


def evaluate_criteria(
    corpus: TwoCriteriaCorpus, instructions: Sequence[str], encode: Encode, seed: int, protocol: str
) -> Outcomes:
    """Compute the V-measures of a corpus under one instruction per criterion.

    Args:
        corpus: Texts with two labels each.
        instructions: The instruction for each criterion.
        encode: Turns texts and an instruction into vectors.
        seed: Seed of k-means.
        protocol: "k-means" or "paper", see ``group_vectors``.

    Returns:
        One V-measure per criterion and their harmonic_mean, times 100, with the groups.
    """
    from sklearn.metrics import v_measure_score

    scores: Scores = {}
    columns: dict[str, list[Any]] = {"criterion": [], "group": [], "label": []}
    for criterion, instruction, labels in zip(corpus.criteria, instructions, corpus.labels, strict=True):
        groups = group_vectors(encode(corpus.texts, instruction), len(set(labels)), seed, protocol)
        scores[criterion] = 100 * float(v_measure_score(labels, groups))
        for name, values in (("criterion", [criterion] * len(labels)), ("group", groups.tolist()), ("label", labels)):
            columns[name] += values
    units = list(range(len(corpus.texts))) * len(corpus.criteria)
    return Outcomes({**scores, "harmonic_mean": harmonic_mean(list(scores.values()))}, "v_measure", units, columns)
