"""InstructSTSB: pairs that are alike under one question and not under another (InBedder paper, section 3.2).

The score is the Spearman correlation (times 100) of the cosine of both vectors with the rating 0 or 1.
"""

from __future__ import annotations

from evaluation.metrics import row_cosines, spearman
from evaluation.tasks.base import SHIPPED, Encode, Rows, Scores, TaskInfo, fingerprint, read_jsonl
from inbedder.errors import InputError


class InstructSTSB:
    """Sentence pairs with an instruction a pair: the set written for this project, or rows of your own."""

    seeded = False

    def __init__(self, rows: Rows | None = None) -> None:
        """Read the pairs.

        Args:
            rows: Pairs with sentence1, sentence2, instruction, score; None for the shipped ones.

        Raises:
            InputError: When there is no pair.
        """
        self.rows = read_jsonl(SHIPPED / "instruct_stsb.jsonl") if rows is None else rows
        if not self.rows:
            raise InputError("InstructSTSB needs pairs; there is none.")
        self.info = TaskInfo(
            name="InstructSTSB (written)",
            main_score="cosine_spearman",
            source="evaluation/data/instruct_stsb.jsonl",
            revision=fingerprint(self.rows),
            licence="CC BY 4.0; STSb CC BY-SA 4.0",
            citation="Written for this project over STSb (Cer et al. 2017)",
        )

    def first_input(self) -> tuple[str, str]:
        """The first sentence and its instruction."""
        return self.rows[0]["sentence1"], self.rows[0]["instruction"]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Correlation of cosines with ratings.

        Args:
            encode: Texts and instructions to vectors.
            seed: Not used.

        Returns:
            cosine_spearman, times 100.
        """
        texts = [row[part] for part in ("sentence1", "sentence2") for row in self.rows]
        vectors = encode(texts, [row["instruction"] for row in self.rows] * 2)
        count = len(self.rows)
        cosines = row_cosines(vectors[:count], vectors[count:])
        return {"cosine_spearman": spearman(cosines, [float(row["score"]) for row in self.rows])}
