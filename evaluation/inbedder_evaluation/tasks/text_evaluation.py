"""Text evaluation by embeddings (Billboard; INSTRUCTOR paper, appendix B.3).

The score of a generated text is the largest cosine of its vector with those of its references. The metric is the Pearson
correlation of these scores with human ratings.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from inbedder.errors import InputError
from inbedder.io.tables import read_rows
from inbedder.prompting.templates import read_prompts
from inbedder.vectors.vectors import compute_row_cosines
from inbedder_evaluation.item_results import Outcomes, number_names
from inbedder_evaluation.metrics import pearson, spearman
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import Encode, Scores, TaskInfo, fingerprint, read_instructions


class TextEvaluation:
    """Generated texts, their references and human ratings."""

    seeded = False

    def __init__(self, name: str, folder: Path, wording: str | None = None) -> None:
        """Read a set.

        Args:
            name: A text evaluation of ``sets.yaml``; its references are in the folder of the human scores.
            folder: Folder of the sets, with one subfolder each.
            wording: Which of INSTRUCTOR's models has the words of the instruction: base, large or xl; None for our question, in
                whose place INSTRUCTOR models get the words of large.

        Raises:
            InputError: If there is no such wording, the set has no human scores, or a text has no reference.
        """
        known_set = find_set("text evaluation", name)
        source = folder / str(known_set.file)
        if not source.is_file():
            raise InputError(f"{name} has no {source.name}: there are no ratings to correlate with.")
        outputs = read_rows(str(source))
        reference_rows = read_rows(str(source.with_name("references.jsonl.gz")))
        references = {(row["seg_id"], row["set_id"]): row["refs"] for row in reference_rows}
        self.texts = [str(row["hyp"]) for row in outputs]
        self.scores = [_read_human_score(row) for row in outputs]
        try:
            self.references = [references[row["seg_id"], row["set_id"]] for row in outputs]
        except KeyError as error:
            raise InputError(f"{name}: no references for {error.args[0]}.") from error
        if not all(self.references):
            raise InputError(f"{name}: some outputs have an empty list of references.")
        self.instruction = read_instructions("standard")[name] if wording is None else _find_words(name, wording)
        self.info = TaskInfo(
            name=name,
            main_score="pearson",
            source=str(known_set.file),
            revision=fingerprint([], [self.texts, self.scores, self.references, self.instruction]),
            licence=known_set.licence,
            citation=known_set.citation,
        )

    def get_first_input(self) -> tuple[str, str]:
        """Return the first text and the instruction."""
        return self.texts[0], self.instruction

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute correlations with human ratings.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Not used.

        Returns:
            pearson and spearman, times 100.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute the correlations, and the largest cosine and rating of each text; texts that share references form one unit."""
        everything = list(dict.fromkeys([*self.texts, *(ref for refs in self.references for ref in refs)]))
        place = {text: row for row, text in enumerate(everything)}
        vectors = encode(everything, self.instruction)
        pairs = [(place[text], place[ref], i) for i, text in enumerate(self.texts) for ref in self.references[i]]
        first, second, owner = (list(side) for side in zip(*pairs, strict=True))
        best = np.full(len(self.texts), -np.inf)
        np.maximum.at(best, owner, compute_row_cosines(vectors[first], vectors[second]))
        scores = {"pearson": pearson(best, self.scores), "spearman": spearman(best, self.scores)}
        units = number_names([tuple(refs) for refs in self.references])
        return Outcomes(scores, "pearson", units, {"cosine": best.tolist(), "rating": self.scores})


def _find_words(name: str, wording: str) -> str:
    words = read_prompts("represent")["text_evaluation"][name]
    if wording not in words:
        raise InputError(f"There is no wording {wording!r}. Choose from: {', '.join(words)}.")
    return str(words[wording])


def _read_human_score(row: dict[str, Any]) -> float:
    """Read the human score: THumB's total, or the mean of the experts' ratings."""
    if "human_score" in row:
        return float(row["human_score"])
    return mean(mean(map(float, annotation.values())) for annotation in row["expert_annotations"])
