"""Text evaluation by embeddings (Billboard; INSTRUCTOR paper, appendix B.3).

The score of a generated text is the largest cosine of its vector with those of its references; the metric is the Pearson
correlation of these scores with what people said of the texts.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from evaluation.metrics import pearson, spearman
from evaluation.tasks.base import Encode, Scores, TaskInfo, fingerprint, instructions_of, read_jsonl
from inbedder.errors import InputError
from inbedder.vectors import row_cosines

SETS = ("texteval_mscoco", "texteval_cnndm")
"""Sets with human scores; texteval_wmt20_zh_en comes with references alone."""


class TextEvaluation:
    """Generated texts, their references, and what people said of them."""

    seeded = False

    def __init__(self, name: str, folder: Path) -> None:
        """Read a set.

        Args:
            name: A name of ``SETS``.
            folder: Where the sets lie, one folder each.

        Raises:
            InputError: When the set has no human scores, or a text has no reference.
        """
        source = folder / name / "human_scores.jsonl.gz"
        if not source.is_file():
            raise InputError(f"{name} has no {source.name}: references alone cannot be correlated with anything.")
        outputs = read_jsonl(source)
        references = {(row["seg_id"], row["set_id"]): row["refs"] for row in read_jsonl(source.with_name("references.jsonl.gz"))}
        self.texts = [str(row["hyp"]) for row in outputs]
        self.scores = [_human_score(row) for row in outputs]
        try:
            self.references = [references[row["seg_id"], row["set_id"]] for row in outputs]
        except KeyError as error:
            raise InputError(f"{name}: no references for {error.args[0]}.") from error
        if not all(self.references):
            raise InputError(f"{name}: some outputs have an empty list of references.")
        self.instruction = instructions_of("standard")[name]
        self.info = TaskInfo(
            name=name,
            main_score="pearson",
            source=f"{name}/human_scores.jsonl.gz",
            revision=fingerprint([], [self.texts, self.scores, self.references, self.instruction]),
            licence="Apache-2.0",
            citation="Kasai et al. 2022; Fabbri et al. 2021; carried by Su et al. 2023",
        )

    def first_input(self) -> tuple[str, str]:
        """The first text and the instruction."""
        return self.texts[0], self.instruction

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Correlations with people.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Not used.

        Returns:
            pearson and spearman, times 100.
        """
        everything = list(dict.fromkeys([*self.texts, *(one for refs in self.references for one in refs)]))
        place = {text: row for row, text in enumerate(everything)}
        vectors = encode(everything, self.instruction)
        pairs = [(place[text], place[ref], i) for i, text in enumerate(self.texts) for ref in self.references[i]]
        left, right, owner = (list(side) for side in zip(*pairs, strict=True))
        best = np.full(len(self.texts), -np.inf)
        np.maximum.at(best, owner, row_cosines(vectors[left], vectors[right]))
        return {"pearson": pearson(best, self.scores), "spearman": spearman(best, self.scores)}


def _human_score(row: dict[str, Any]) -> float:
    """The score that people gave: THumB's total, or the mean of the experts' four ratings."""
    if "human_score" in row:
        return float(row["human_score"])
    return mean(mean(map(float, one.values())) for one in row["expert_annotations"])
