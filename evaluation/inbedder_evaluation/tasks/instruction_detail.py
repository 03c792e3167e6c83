"""Effect of the instruction's level of detail: none, a tag, a few words, the full question, and gibberish of the same shape.

INSTRUCTOR (section 4.3) compares four levels of detail: no instruction, the set's name as a prefix (tag), one or two words
(simple), the full instruction (detailed). Its reproduction study (section 4.1.1) asks whether an instruction works by its meaning
or only by the tokens that it adds to all texts. It replaces each word by a run of one letter, the same run wherever the word
appears. Here both are levels of one task, scored by the harmonic mean of the V-measures of k-means against both criteria of a
corpus. A model that reads the instruction scores high on ``detailed`` and low on ``gibberish``; the difference is the main score.
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
    """Read tag and simple instructions by corpus from ``prompts/detail.yaml``."""
    return read_prompts("detail")


def make_gibberish(instructions: Sequence[str]) -> list[str]:
    """Replace each distinct word of instructions by a run of one letter of the same length.

    Args:
        instructions: The instructions to replace together; instructions with different words stay different.

    Returns:
        Meaningless instructions: "Represent the image" becomes "AAAAAAAAA BBB CCCCC". A word becomes the same run in all of
        them. After 26 words, runs begin with a second letter (AA, AB, ...).
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
    """Clustering of one corpus under instructions of five levels."""

    seeded = True

    def __init__(self, corpus: TwoCriteriaCorpus, words: Mapping[str, Any], protocol: str = "k-means") -> None:
        """Prepare the instructions of all levels.

        Args:
            corpus: Texts with two labels each, and the detailed instruction per criterion.
            words: The corpus's tag, and a simple instruction per criterion.
            protocol: "k-means" or "paper", see ``group_vectors``.
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
        """Compute the harmonic mean of both V-measures at each level, and delta_gibberish: detailed minus gibberish."""
        scores = {
            level: evaluate_criteria(self.corpus, instructions, encode, seed, self.protocol).scores["harmonic_mean"]
            for level, instructions in self.levels.items()
        }
        return {**scores, "delta_gibberish": scores["detailed"] - scores["gibberish"]}
