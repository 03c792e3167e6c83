"""Instruction robustness: a criterion asked for correctly, implicitly and incorrectly (InBedder paper, section 3.3).

k-means under each of ten correct, ten implicit and ten incorrect instructions, scored by V-measure against the criterion's
labels. A model that follows instructions groups by the criterion when asked for it in any words, and does not when asked for
something else: delta_ci is the mean of the correct minus that of the incorrect, delta_ii the mean of the implicit minus that of
the incorrect. The spread over correct paraphrases (INSTRUCTOR, section 4.2) is their minimum, mean and maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from evaluation.metrics import v_measure
from evaluation.tasks.base import Encode, Scores, TaskInfo, fingerprint, under_protocol
from inbedder.errors import InputError
from inbedder.prompting import read_prompts
from inbedder.vectors import Vectors

KINDS = ("correct", "implicit", "incorrect")


def robustness_instructions() -> dict[str, dict[str, Any]]:
    """Instructions by corpus and criterion, from ``prompts/robustness.yaml``."""
    return read_prompts("robustness")


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with one label each."""

    name: str
    """Name of corpus and criterion."""
    texts: Sequence[str]
    """n texts."""
    labels: Sequence[str]
    """n labels."""
    source: str
    """Where the rows come from."""
    licence: str
    """Licence of the data."""


class InstructionRobustness:
    """Correct, implicit and incorrect instructions for one criterion."""

    seeded = True

    def __init__(self, data: LabelledTexts, instructions: Mapping[str, list[str]], protocol: str = "k-means") -> None:
        """Take labelled texts and three kinds of instructions.

        Args:
            data: Texts and their labels.
            instructions: Lists under "correct", "implicit" and "incorrect".
            protocol: As ``v_measure`` takes it.

        Raises:
            InputError: When a kind of instruction is missing, or the labels cannot be grouped by.
        """
        for kind in KINDS:
            if not instructions.get(kind):
                raise InputError(f"{data.name} has no {kind} instructions; give lists of correct, implicit and incorrect ones.")
        classes = len(set(data.labels))
        if not 1 < classes < len(data.texts):
            raise InputError(f"{data.name} has {classes} classes in {len(data.texts)} texts; nothing to group.")
        self.data = data
        self.protocol = protocol
        self.instructions = {kind: list(instructions[kind]) for kind in KINDS}
        rows = [{"text": text, "label": label} for text, label in zip(data.texts, data.labels, strict=True)]
        self.info = TaskInfo(
            name=under_protocol(f"{data.name} robustness", protocol),
            main_score="delta_ci",
            source=data.source,
            revision=fingerprint(rows, self.instructions),
            licence=data.licence,
            citation="Instructions written for this project by the paper's procedure",
        )

    def first_input(self) -> tuple[str, str]:
        """The first text and the first correct instruction."""
        return self.data.texts[0], self.instructions["correct"][0]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """V-measures of all instructions and their differences.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Seed of k-means.

        Returns:
            One V-measure per instruction (correct_0 ...), delta_ci, delta_ii, and minimum, mean and maximum of the correct
            ones, times 100.
        """
        measured: dict[int, tuple[Vectors, float]] = {}  # an embedder that ignores instructions gives one array: group it once

        def score(instruction: str) -> float:
            vectors = encode(self.data.texts, instruction)
            if id(vectors) not in measured:
                measured[id(vectors)] = (vectors, v_measure(vectors, self.data.labels, seed, self.protocol))
            return measured[id(vectors)][1]

        values = {kind: [score(instruction) for instruction in self.instructions[kind]] for kind in KINDS}
        scores = {f"{kind}_{i}": value for kind in KINDS for i, value in enumerate(values[kind])}
        correct, implicit, incorrect = (mean(values[kind]) for kind in KINDS)
        spread = {"correct_min": min(values["correct"]), "correct_mean": correct, "correct_max": max(values["correct"])}
        return {**scores, **spread, "delta_ci": correct - incorrect, "delta_ii": implicit - incorrect}
