"""Questions in several wordings: a task repeated under each wording of its questions.

How well a model follows a question depends on the words of the question. Tables of scores for choosing models (``sets.yaml``)
therefore show the mean over several wordings, and the worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean

from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb, read_csts
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets
from inbedder_evaluation.tasks.corpus import load_corpus
from inbedder_evaluation.tasks.criteria_clustering import CriteriaClustering
from inbedder_evaluation.tasks.intent_emotion import IntentEmotion, load_intent_emotion
from inbedder_evaluation.tasks.sets import TableRow, find_set
from inbedder_evaluation.tasks.standard import load_standard_task
from inbedder_evaluation.tasks.task import Encode, Scores, Task, fingerprint, read_wordings

CORPUS_SCORES: dict[str, Callable[..., Task]] = {"clustering": CriteriaClustering, "triplets": ContrastTriplets}
"""Classes of the scores of a corpus, by their names in ``sets.yaml``."""


class QuestionWordings:
    """A task under several wordings of its questions."""

    def __init__(
        self,
        name: str,
        variants: Sequence[Task],
        criteria: Sequence[str],
        texts: Sequence[str] = (),
        instructions: Sequence[str] = (),
        *,
        has_question: bool = True,
    ) -> None:
        """Join the variants of a task.

        Args:
            name: Name of the set and of the kind of score.
            variants: The task under each wording.
            criteria: Names of the scores to report.
            texts: The texts that all questions are asked of; empty if each text has its own question.
            instructions: All wordings of all questions, if they are asked of the same texts.
            has_question: Whether models get a question.
        """
        self.name, self.variants, self.criteria = name, variants, criteria
        self.texts, self.instructions, self.has_question = texts, instructions, has_question
        self.seeded = variants[0].seeded
        self.get_first_input = variants[0].get_first_input
        wordings = f"{len(variants)} wording{'s' * (len(variants) > 1)}" if has_question else "no question"
        revision = fingerprint([], [variant.info.revision for variant in variants])
        self.info = replace(variants[0].info, name=f"{name}, {wordings}", main_score="mean", revision=revision)

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute each score under each wording.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Seed of k-means.

        Returns:
            A score per criterion and wording ("intent 1", "intent 2"), and the mean of all.
        """
        variants = self.variants
        if len(self.instructions) > 1 and encode(self.texts, self.instructions[0]) is encode(self.texts, self.instructions[1]):
            variants = variants[:1]  # by an embedder that returns one array for all instructions
        measured = [variant.evaluate(encode, seed) for variant in variants]
        measured += measured[:1] * (len(self.variants) - len(measured))
        scores = {
            f"{criterion} {number}": wording_scores[criterion]
            for criterion in self.criteria
            for number, wording_scores in enumerate(measured, 1)
        }
        return {**scores, "mean": mean(scores.values())}


def build_row(row: TableRow, folder: Path, limit: int | None) -> list[QuestionWordings]:
    """Build the tasks of a row of a table.

    Args:
        row: A row of ``sets.yaml``.
        folder: Folder of the known sets.
        limit: Maximum number of rows of the set, sampled with seed 0.

    Returns:
        The tasks: one, or one per score of a corpus.
    """
    return BUILDERS.get(row.kind, _build_standard)(row, folder, limit)


def _build_corpus(row: TableRow, folder: Path, limit: int | None) -> list[QuestionWordings]:
    corpus = load_corpus(row.set, folder, limit)
    wordings = [read_wordings(row.set)[criterion] for criterion in corpus.criteria]
    worded_corpora = [
        replace(corpus, instructions=pair, revision=fingerprint([], [corpus.revision, pair]))
        for pair in zip(*wordings, strict=True)
    ]
    questions = [question for criterion_wordings in wordings for question in criterion_wordings]
    return [
        QuestionWordings(
            f"{corpus.name} {score}",
            [CORPUS_SCORES[score](worded) for worded in worded_corpora],
            corpus.criteria,
            corpus.texts,
            questions,
        )
        for score in row.scores
    ]


def _build_standard(row: TableRow, folder: Path, limit: int | None) -> list[QuestionWordings]:
    wordings = read_wordings("standard")[row.set.split(" ")[0]] if row.has_question else []
    variants = [load_standard_task(row.kind, row.set, folder, limit, wording) for wording in wordings or [""]]
    info, texts = variants[0].info, variants[0].list_texts()
    return [QuestionWordings(info.name, variants, [info.main_score], texts, wordings, has_question=row.has_question)]


def _build_intent_emotion(row: TableRow, _folder: Path, _limit: int | None) -> list[QuestionWordings]:
    task = load_intent_emotion(row.set)
    wordings = read_wordings("intent_emotion")
    variants = []
    for questions in zip(*wordings.values(), strict=True):
        instructions = dict(zip(wordings, questions, strict=True))
        info = replace(task.info, revision=fingerprint(task.rows, instructions))
        variants.append(IntentEmotion(task.rows, info, instructions))
    return [QuestionWordings(row.set, variants, list(wordings))]


def _build_instruct_stsb(row: TableRow, _folder: Path, _limit: int | None) -> list[QuestionWordings]:
    task = load_instruct_stsb(row.set)  # its pairs have questions of their own, in one wording
    return [QuestionWordings(row.set, [task], [task.info.main_score])]


def _build_csts(row: TableRow, folder: Path, limit: int | None) -> list[QuestionWordings]:
    known_set = find_set(row.kind, row.set)
    read_variant = partial(read_csts, folder / str(known_set.file), limit=limit)
    variants = [read_variant(as_questions=pattern) for pattern in read_wordings(row.set)["condition"]]
    sample = f" ({len(variants[0].rows)} rows)" if limit is not None else ""
    return [QuestionWordings(f"{row.set}{sample}", variants, [variants[0].info.main_score])]


BUILDERS: dict[str, Callable[[TableRow, Path, int | None], list[QuestionWordings]]] = {
    "corpus": _build_corpus,
    "intent emotion": _build_intent_emotion,
    "instruct sts": _build_instruct_stsb,
    "conditional sts": _build_csts,
}
"""Builders of the tasks of a row, by kind of set; all other kinds are standard tasks."""
