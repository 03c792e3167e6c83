"""Prompt retrieval (INSTRUCTOR paper, B.2): which training examples would help a language model with a test question?

The paper retrieves the nearest annotated questions and lets GPT-J answer with them. This task needs no language model: it checks
whether the retrieved examples have logical forms like the test question's own. The score is the token F1 of both SQL queries
(column values such as "arizona" replaced by column names), averaged over the k nearest examples.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import normalize_vectors
from inbedder_evaluation.item_results import Outcomes
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import Encode, Scores, TaskInfo, fingerprint, read_instructions


def token_f1(first: str, second: str) -> float:
    """Compute the F1 of two texts' tokens (split at white space, as multisets); it is 0 when they share none.

    Args:
        first: The first text.
        second: The second text.

    Returns:
        0 to 1.
    """
    a, b = Counter(first.split()), Counter(second.split())
    shared = sum((a & b).values())
    return 2 * shared / (sum(a.values()) + sum(b.values())) if shared else 0.0


class PromptRetrieval:
    """GeoQuery: questions about US geography with their SQL."""

    seeded = False

    def __init__(self, folder: Path, k: int = 8) -> None:
        """Read the set.

        Args:
            folder: Folder of the sets, with one subfolder each.
            k: Number of examples to retrieve per question.
        """
        known_set = find_set("prompt retrieval", "geoquery")
        self.train, self.test = (read_rows(str(folder / str(file))) for file in (known_set.train, known_set.file))
        self.k = k
        self.instruction = read_instructions("standard")["geoquery"]
        rows = [[row["question"], row["sql_template"]] for row in [*self.train, *self.test]]
        self.info = TaskInfo(
            name="geoquery prompt retrieval",
            main_score=f"sql_f1_at_{k}",
            source=str(known_set.file),
            revision=fingerprint([], [rows, self.instruction, k]),
            licence=known_set.licence,
            citation=known_set.citation,
        )

    def get_first_input(self) -> tuple[str, str]:
        """Return the first question and the instruction."""
        return self.test[0]["question"], self.instruction

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute how similar the retrieved logical forms are to the questions' own.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Not used.

        Returns:
            sql_f1_at_1, sql_f1_at_k and same_template_at_1 (nearest example has the same form), in percent.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute the scores, and the mean F1 of each question's k nearest examples."""
        vectors = normalize_vectors(
            encode([row["question"] for row in [*self.train, *self.test]], self.instruction).astype(np.float64)
        )
        similarity = vectors[len(self.train) :] @ vectors[: len(self.train)].T
        nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : self.k]
        forms = [row["sql_template"] for row in self.train]
        f1 = [
            [token_f1(row["sql_template"], forms[i]) for i in neighbours]
            for row, neighbours in zip(self.test, nearest, strict=True)
        ]
        has_same_form = [row["sql_template"] == forms[neighbours[0]] for row, neighbours in zip(self.test, nearest, strict=True)]
        scores = {
            "sql_f1_at_1": 100 * float(np.mean([by_rank[0] for by_rank in f1])),
            f"sql_f1_at_{self.k}": 100 * float(np.mean(f1)),
            "same_template_at_1": 100 * float(np.mean(has_same_form)),
        }
        question_scores = [100 * float(np.mean(by_rank)) for by_rank in f1]
        return Outcomes(scores, "mean", range(len(question_scores)), {"score": question_scores})
