"""Two-criteria clustering: k-means under each criterion's instruction, against that criterion's labels.

Generalises NYTClustering (InBedder paper, section 3.2) to any corpus with two label columns: the score is the harmonic mean of
both V-measures.
"""

from __future__ import annotations

from evaluation.metrics import harmonic_mean, v_measure
from evaluation.tasks.base import Encode, Scores
from evaluation.tasks.corpus import TwoCriteriaCorpus
from inbedder.errors import InputError


class CriteriaClustering:
    """Clustering of one corpus under two instructions."""

    seeded = True

    def __init__(self, corpus: TwoCriteriaCorpus, protocol: str = "k-means") -> None:
        """Take a corpus.

        Args:
            corpus: Texts with two labels each, and an instruction a criterion.
            protocol: As ``v_measure`` takes it.

        Raises:
            InputError: When a criterion has more classes than there are texts to group.
        """
        for criterion, labels in zip(corpus.criteria, corpus.labels, strict=True):
            if len(set(labels)) >= len(labels):
                raise InputError(
                    f"{corpus.name}: {criterion!r} has a class for every one of {len(labels)} texts; nothing to group."
                )
        self.corpus = corpus
        self.protocol = protocol
        self.info = corpus.task_info("two-criteria clustering" + (f", {protocol} protocol" if protocol != "k-means" else ""))
        self.first_input = corpus.first_input

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """V-measures under both instructions.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Seed of k-means.

        Returns:
            One V-measure a criterion and their harmonic_mean, times 100.
        """
        scores = {
            criterion: v_measure(encode(self.corpus.texts, instruction), labels, seed, self.protocol)
            for criterion, instruction, labels in zip(
                self.corpus.criteria, self.corpus.instructions, self.corpus.labels, strict=True
            )
        }
        return {**scores, "harmonic_mean": harmonic_mean(list(scores.values()))}
