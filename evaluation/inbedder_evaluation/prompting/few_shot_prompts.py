"""Prompts of the few-shot baseline on C-STS and STS-B, and ratings from answers (C-STS paper, section 4.2, appendix A.3).

A prompt consists of an instruction (none, short or long), examples, and the query. On C-STS, examples come in contrasting pairs,
which hold both conditions of the same two sentences, the higher-rated first; on STS-B they are single rows. They are sampled for
each query and never have its sentences. ``prompts/csts.yaml`` holds the wording. Prompts match those of the authors' code byte
for byte; the code has one form for decoders and one for encoder-decoders. Two things differ: the sampled examples, and a
decoder's beginning-of-sequence token, which is kept.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inbedder.conditional.rated_rows import TEXT_COLUMNS, RatedPair, get_scale, select_contrasting
from inbedder.errors import InputError
from inbedder.prompting.templates import PromptTemplate, read_prompts
from inbedder.prompting.tokenization import clean_text

INSTRUCTIONS = ("none", "short", "long")


@dataclass(frozen=True)
class FewShotPrompts:
    """The prompts of one data set for one kind of model."""

    dataset: str
    """"csts", or "stsb" for rows without conditions."""
    kind: str
    """"causal" or "seq2seq"."""

    @property
    def scale(self) -> tuple[float, float]:
        """The lowest and the highest rating."""
        return get_scale(has_conditions=self.dataset == "csts")

    @property
    def examples_per_unit(self) -> int:
        """Number of examples that are sampled together: the two of a contrasting pair, or one row of STS-B."""
        return 2 if self.dataset == "csts" else 1

    @property
    def template(self) -> PromptTemplate:
        """The template: context (instruction and examples), query, and answer marker; only the query is ever truncated."""
        return PromptTemplate(self.dataset, "{instruction}{input} " + self._answer_marker)

    def select_examples(self, rows: Sequence[RatedPair]) -> list[RatedPair]:
        """Select the rows that can be examples: on C-STS those of contrasting pairs."""
        return select_contrasting(rows) if self.dataset == "csts" else list(rows)

    def render_query(self, row: Mapping[str, object]) -> str:
        """Render the query of a row.

        Args:
            row: A row with sentence1, sentence2 and, for C-STS, condition.

        Returns:
            The query part of the prompt.
        """
        first, second, condition = (str(row[column]) for column in TEXT_COLUMNS)
        parts = {"sentence1": first.strip(), "sentence2": second.strip(), "condition": condition, "after": self._after}
        return str(self._wording["query"]).format(**parts)

    def render_context(
        self, row: Mapping[str, object], examples: Sequence[RatedPair], instruction: str, shots: int, seed: int = 0
    ) -> str:
        """Render the instruction and examples that precede a query.

        Args:
            row: The query's row.
            examples: Rows of ``select_examples``.
            instruction: "none", "short" or "long".
            shots: Number of examples; an even number for C-STS.
            seed: Seed of the sample, which also depends on the row.

        Returns:
            Instruction and examples, one per line.

        Raises:
            InputError: If there are too few examples.
        """
        unit, sentences = self.examples_per_unit, {row["sentence1"], row["sentence2"]}
        starts = [i for i in range(0, len(examples), unit) if {examples[i].sentence1, examples[i].sentence2} != sentences]
        if len(starts) < shots // unit:
            kind = "contrasting pairs" if unit == 2 else "rows"
            raise InputError(f"{shots} examples need {shots // unit} {kind} other than the query's own; there are {len(starts)}.")
        sampled_starts = random.Random(clean_text(f"{seed} {self.render_query(row)}")).sample(starts, shots // unit)
        lines = [str(self._wording["instructions"][instruction]).strip()]
        for start in sampled_starts:
            for example in examples[start : start + unit]:
                query = self.render_query({column: getattr(example, column) for column in TEXT_COLUMNS})
                lines.append(f"{query} {self._answer_marker}{float(example.label)}")
        return "".join(f"{line}\n" for line in lines if line)

    @property
    def _wording(self) -> dict[str, Any]:
        return dict(read_prompts("csts")["few_shot"][self.dataset])

    @property
    def _after(self) -> str:
        return str(read_prompts("csts")["few_shot"]["after"][self.kind])

    @property
    def _answer_marker(self) -> str:
        return str(read_prompts("csts")["few_shot"]["output"]).format(after=self._after)


@dataclass(frozen=True)
class ParsedAnswers:
    """A model's answers, parsed as ratings."""

    ratings: list[float]
    """One rating per row; see ``parse_answers`` for answers out of format."""
    without_number: int
    """Number of answers without a number."""
    outside: int
    """Number of answers with a number outside the scale."""


def parse_answers(answers: Sequence[str], scale: tuple[float, float], *, as_authors: bool = False) -> ParsedAnswers:
    """Parse ratings from answers: the first number of each.

    Args:
        answers: n texts, such as "The answer is 2.5."
        scale: The lowest and the highest rating.
        as_authors: Treat answers out of format as the authors' code does: a number outside the scale stays, a sign or a point
            before the number is not read, and an answer without a number gets one sampled uniformly from the scale. Otherwise
            the middle of the scale replaces both.

    Returns:
        n ratings, and the numbers of answers out of format.
    """
    low, high = scale
    pattern = r"\d+(?:\.\d+)?" if as_authors else r"(?:(?<!\w)-)?(?:\d+(?:\.\d+)?|\.\d+)"
    matches = [re.search(pattern, answer) for answer in answers]
    numbers = [None if match is None else float(match[0]) for match in matches]
    sampler = random.Random(0)
    ratings = []
    for number in numbers:
        if number is not None and (as_authors or low <= number <= high):
            ratings.append(number)
        else:
            ratings.append(sampler.uniform(low, high) if as_authors else (low + high) / 2)
    return ParsedAnswers(
        ratings=ratings,
        without_number=sum(number is None for number in numbers),
        outside=sum(number is not None and not low <= number <= high for number in numbers),
    )
