"""Conditional similarity: sentence pairs that are similar under one instruction and not under another.

C-STS (Deshpande et al. 2023) rates each pair of sentences from 1 to 5 under a condition; InstructSTSB (InBedder paper, section
3.2) gives pairs of the STS benchmark a question under which they agree (1) or differ (0). Both sentences are encoded under the
pair's own instruction; the scores are the Spearman and Pearson correlations of cosines with ratings, times 100.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.conditional.rated_rows import COLUMNS, read_rated_pairs
from inbedder.errors import InputError
from inbedder.io.tables import read_rows
from inbedder.prompting.templates import read_prompts
from inbedder.vectors.vectors import compute_row_cosines
from inbedder_evaluation.item_results import Outcomes, number_names
from inbedder_evaluation.metrics import pearson, spearman
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import SHIPPED, Encode, Scores, Similarity, TaskInfo, fingerprint, read_hub, read_instructions


class ConditionalSTS:
    """Sentence pairs with one instruction (a condition or a question) per pair."""

    seeded = False

    def __init__(
        self,
        info: TaskInfo,
        rows: Sequence[Mapping[str, Any]],
        instruction: str = "instruction",
        score: str = "score",
        *,
        to_predict: bool = False,
    ) -> None:
        """Check the pairs and parse their ratings.

        Args:
            info: Name and provenance of the task.
            rows: Pairs with sentence1, sentence2, an instruction and a rating.
            instruction: Column of the instruction.
            score: Column of the rating, a number.
            to_predict: Whether the pairs need no ratings, because their similarities are only predicted.

        Raises:
            InputError: If there are fewer than two pairs, a field is missing, or the ratings are all the same.
        """
        for number, row in enumerate(rows, 1):
            for column in ("sentence1", "sentence2", instruction):
                if not isinstance(row.get(column), str) or not row[column].strip():
                    raise InputError(f"{info.name}: row {number} has no text in column {column!r}.")
        self.rows = rows
        self.instructions = [str(row[instruction]) for row in rows]
        self.scores = (
            [] if to_predict else [_parse_rating(info.name, number, row.get(score), score) for number, row in enumerate(rows, 1)]
        )
        if not to_predict and len(set(self.scores)) < 2:
            raise InputError(f"{info.name} needs pairs of different ratings; {len(rows)} pair(s) have the same rating.")
        self.info = info

    def get_first_input(self) -> tuple[str, str]:
        """Return the first sentence and its instruction."""
        return str(self.rows[0]["sentence1"]), self.instructions[0]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute the correlations of cosines with ratings.

        Args:
            encode: Turns texts and instructions into vectors.
            seed: Not used.

        Returns:
            cosine_spearman and cosine_pearson, times 100.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute the correlations, and the cosine and rating of each row; rows of the same two sentences form one unit."""
        return self._correlate(self.compute_cosines(encode), "cosine_")

    def evaluate_pairs(self, similarity: Similarity) -> Outcomes:
        """Compute the correlations with ratings for a model that scores pairs and has no vectors.

        Args:
            similarity: Scores n pairs from first sentences, second sentences and conditions.

        Returns:
            spearman and pearson, times 100, with the score of each row.
        """
        return self._correlate(self.score_pairs(similarity), "")

    def compute_cosines(self, encode: Encode) -> NDArray[Any]:
        """Compute the cosine of each pair's vectors, shape (n,)."""
        vectors = encode([*self._get_texts("sentence1"), *self._get_texts("sentence2")], self.instructions * 2)
        return compute_row_cosines(vectors[: len(self.rows)], vectors[len(self.rows) :])

    def score_pairs(self, similarity: Similarity) -> NDArray[Any]:
        """Compute the score of each pair, shape (n,), by a model that scores pairs."""
        return similarity(self._get_texts("sentence1"), self._get_texts("sentence2"), self.instructions)

    def _get_texts(self, column: str) -> list[str]:
        return [str(row[column]) for row in self.rows]

    def _correlate(self, similarities: Any, prefix: str) -> Outcomes:
        scores = {
            f"{prefix}spearman": spearman(similarities, self.scores),
            f"{prefix}pearson": pearson(similarities, self.scores),
        }
        pairs = [tuple(sorted((str(row["sentence1"]), str(row["sentence2"])))) for row in self.rows]
        columns = {"cosine": np.asarray(similarities, dtype=np.float64).tolist(), "rating": self.scores}
        return Outcomes(scores, "spearman", number_names(pairs), columns)


def _parse_rating(name: str, number: int, value: Any, column: str) -> float:
    try:
        rating = float(value)
    except (TypeError, ValueError):
        rating = float("nan")
    if rating != rating:
        raise InputError(f"{name}: row {number} has {value!r} in column {column!r}, not a rating. Drop such rows first.")
    return rating


def load_instruct_stsb(name: str = "InstructSTSB (written)") -> ConditionalSTS:
    """Load InstructSTSB as written for this project, or the authors' set from the hub.

    Args:
        name: A name of this kind in ``sets.yaml``.

    Returns:
        The task.
    """
    known_set = find_set("instruct sts", name)
    if known_set.file:
        pairs = read_rows(str(SHIPPED / known_set.file))
        source, revision = f"evaluation/data/{known_set.file}", fingerprint(pairs)
    else:
        source, revision = known_set.pinned
        pairs = read_hub(source, revision)
    return ConditionalSTS(TaskInfo(name, "cosine_spearman", source, revision, known_set.licence, known_set.citation), pairs)


def read_csts(
    path: Path,
    *,
    as_questions: bool | str = False,
    split: str = "test",
    limit: int | None = None,
    to_predict: bool = False,
) -> ConditionalSTS:
    """Read C-STS from the authors' file (``inbedder.conditional.rated_rows`` says how to request it), or a similar table.

    A table without the column condition is measured as STS-B, under the instruction of STS-B.

    Args:
        path: A table with sentence1, sentence2, condition and label (1 to 5), such as csts_validation.csv, or without condition
            and with labels from 0 to 5.
        as_questions: Whether to turn conditions into questions, or the pattern of the questions, with ``{condition}``.
        split: Which rows to use when the file has a column split.
        limit: Maximum number of rows, sampled with seed 0.
        to_predict: Whether the rows may hide their labels, because their similarities are only predicted.

    Returns:
        The task.

    Raises:
        InputError: If a column, a text or a rating is missing, the labels are hidden, as in the authors' test file, or
            predictions are limited to some of the rows.
    """
    if to_predict and limit is not None:
        raise InputError("A submission holds a prediction for each row of the file. Leave the limit out.")
    rated = read_rated_pairs(path, split, may_hide_labels=to_predict, needs_condition=False)
    sample = ""
    if limit is not None and len(rated) > limit:
        rated, sample = random.Random(0).sample(rated, limit), f", {limit} rows"
    rows = [{column: getattr(row, column) for column in COLUMNS} for row in rated]
    has_conditions = bool(rated[0].condition)
    if not has_conditions:
        rows = [row | {"instruction": read_instructions("standard")["stsb"]} for row in rows]
    if as_questions:
        pattern = as_questions if isinstance(as_questions, str) else None
        rows = [row | {"condition": as_question(str(row["condition"]), pattern)} for row in rows]
    info = TaskInfo(
        name=f"{'C-STS' if has_conditions else 'STS'} ({path.name}{sample})"
        + ("" if split == "test" else f", {split}")
        + (", as a question" if as_questions else ""),
        main_score="cosine_spearman",
        source=path.name,
        revision=fingerprint(rows),
        licence="of the file; that of C-STS itself is on request from its authors and may not be redistributed",
        citation="Deshpande et al. 2023" if has_conditions else "Cer et al. 2017",
        quoted=False,
    )
    return ConditionalSTS(info, rows, "condition" if has_conditions else "instruction", "label", to_predict=to_predict)


def as_question(condition: str, pattern: str | None = None) -> str:
    """Turn a condition into a question, the form that models of this package were trained on.

    Args:
        condition: A condition, such as "The colour of the car."
        pattern: The question, with ``{condition}``; None for the one in ``prompts/csts.yaml``.

    Returns:
        A question, such as "What is the colour of the car?", also for "colour of the car". A condition that starts like a
        question only gets a question mark.
    """
    plain = condition.strip().rstrip(".:;?! ")
    prompts = read_prompts("csts")
    if plain.split(" ")[0].lower() in prompts["question_words"]:
        return f"{plain}?"
    is_name = plain[1:2].isupper()
    words = plain if is_name else plain[:1].lower() + plain[1:]
    needs_article = not is_name and words.split(" ")[0].lower() not in prompts["determiners"]
    return str(pattern or prompts["question"]).format(condition=f"the {words}" if needs_article else words)
