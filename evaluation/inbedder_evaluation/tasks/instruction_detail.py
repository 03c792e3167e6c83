"""How much of the instruction counts: from none over a tag to the full question, and gibberish of the same shape.

INSTRUCTOR (section 4.3) compares four levels of detail: nothing, the set's name in front (tag), one or two words (simple), the
full instruction (detailed). Its reproduction (section 4.1.1) asks whether an instruction works by its meaning or only by the
tokens that all texts then share, and puts runs of one letter in the place of each word: the same word is the same run in every
instruction. Here both are levels of one task: V-measure of k-means against each criterion of a corpus, harmonic mean of both.
A model that reads the instruction scores high on ``detailed`` and low on ``make_gibberish``; their difference is the main score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from inbedder.prompting.templates import read_prompts
from inbedder_evaluation.tasks.corpus import TwoCriteriaCorpus
from inbedder_evaluation.tasks.criteria_clustering import evaluate_criteria
from inbedder_evaluation.tasks.task import Encode, Scores, TaskInfo, add_protocol, fingerprint

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_detail_instructions() -> dict[str, dict[str, Any]]:
    """Tag and simple instructions by corpus, from ``prompts/detail.yaml``."""
    return read_prompts("detail")


def make_gibberish(instructions: Sequence[str]) -> list[str]:
    """Instructions of the same shape without a meaning: each distinct word becomes a run of its own letter, of its length.

    Args:
        instructions: Instructions that should stay distinct from each other where they are now.

    Returns:
        "Represent the image" -> "AAAAAAAAA BBB CCCCC"; the same word becomes the same run in all of them. Behind 26 words,
        runs begin with two letters in turn (AB, AC ...).
    """
    runs: dict[str, str] = {}

    def run(match: re.Match[str]) -> str:
        word = match.group()
        if word.lower() not in runs:
            round_, letter = divmod(len(runs), len(LETTERS))
            first = LETTERS[round_ - 1] if round_ else ""
            runs[word.lower()] = first + LETTERS[letter] * max(len(word) - len(first), 1)
        return runs[word.lower()]

    return [re.sub(r"\w+", run, instruction) for instruction in instructions]


class InstructionDetail:
    """One corpus under instructions of five levels."""

    seeded = True

    def __init__(self, corpus: TwoCriteriaCorpus, words: Mapping[str, Any], protocol: str = "k-means") -> None:
        """Take a corpus.

        Args:
            corpus: Texts with two labels each, and the detailed instruction per criterion.
            words: Its tag, and a simple instruction per criterion.
            protocol: As ``v_measure`` takes it.
        """
        simple = tuple(str(words["simple"][criterion]) for criterion in corpus.criteria)
        self.corpus = corpus
        self.protocol = protocol
        self.levels: dict[str, Sequence[str]] = {
            "none": ("", ""),
            "gibberish": make_gibberish(corpus.instructions),
            "tag": (str(words["tag"]),) * 2,
            "simple": simple,
            "detailed": corpus.instructions,
        }
        info_of_corpus = corpus.make_task_info(add_protocol("detail", protocol))
        revision = fingerprint([], [info_of_corpus.revision, self.levels])
        self.info = TaskInfo(
            info_of_corpus.name,
            "delta_gibberish",
            info_of_corpus.source,
            revision,
            info_of_corpus.licence,
            info_of_corpus.citation,
        )
        self.get_first_input = corpus.get_first_input

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Harmonic means of both V-measures by level.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Seed of k-means.

        Returns:
            One score a level, and delta_gibberish (detailed minus gibberish), times 100.
        """
        scores = {
            level: evaluate_criteria(self.corpus, instructions, encode, seed, self.protocol).scores["harmonic_mean"]
            for level, instructions in self.levels.items()
        }
        return {**scores, "delta_gibberish": scores["detailed"] - scores["gibberish"]}
