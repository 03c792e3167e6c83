"""Instruction robustness: correct, implicit and incorrect instructions for a criterion (InBedder paper, section 3.3).

Texts are clustered by k-means under each of ten correct, ten implicit and ten incorrect instructions, and scored by V-measure
against the criterion's labels. A model that follows instructions groups by the criterion however it is worded, and does not when
asked for something else. The lead of correct (c) and implicit (i) instructions over incorrect ones has two definitions::

    delta_ci_means   = mean of correct - mean of incorrect       the paper's text
    delta_ci_min_max = minimum of correct - maximum of incorrect the authors' code
    delta_ii_means, delta_ii_min_max                             the same for implicit instructions

The second is positive only when every correct instruction beats every incorrect one. The spread over correct paraphrases
(INSTRUCTOR, section 4.2) is given by their minimum, mean and maximum.

The paper's own sets are on the hub (``sets.yaml``). Their instructions are in the authors' task files and are not shipped:
``scripts/reproduce/authors_instructions.py`` collects them in a file that ``read_authors_instructions`` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from inbedder.errors import InputError
from inbedder.prompting.templates import read_prompts
from inbedder.vectors.vectors import Vectors
from inbedder_evaluation.metrics import v_measure
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import Encode, Scores, TaskInfo, add_protocol, fingerprint, read_hub

KINDS = ("correct", "implicit", "incorrect")


def read_robustness_instructions() -> dict[str, dict[str, Any]]:
    """Read instructions by corpus and criterion from ``prompts/robustness.yaml``."""
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
    citation: str = "Instructions written for this project by the paper's procedure"
    """Authors of the texts or instructions."""


class InstructionRobustness:
    """Clustering under correct, implicit and incorrect instructions for one criterion."""

    seeded = True

    def __init__(self, data: LabelledTexts, instructions: Mapping[str, list[str]], protocol: str = "k-means") -> None:
        """Check labelled texts and three kinds of instructions.

        Args:
            data: Texts and their labels.
            instructions: Lists under "correct", "implicit" and "incorrect".
            protocol: "k-means" or "paper", see ``group_vectors``.

        Raises:
            InputError: If a kind of instruction is missing, or the labels cannot be clustered.
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
            name=add_protocol(f"{data.name} robustness", protocol),
            main_score="delta_ci_means",
            source=data.source,
            revision=fingerprint(rows, self.instructions),
            licence=data.licence,
            citation=data.citation,
        )

    def get_first_input(self) -> tuple[str, str]:
        """Return the first text and the first correct instruction."""
        return self.data.texts[0], self.instructions["correct"][0]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute the V-measures of all instructions and their differences.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Seed of k-means.

        Returns:
            One V-measure per instruction (correct_0 ...), delta_ci and delta_ii by both definitions, and minimum, mean and
            maximum of the correct ones, times 100.
        """
        measured: dict[
            int, tuple[Vectors, float]
        ] = {}  # an embedder that ignores instructions returns one array: cluster it once

        def score(instruction: str) -> float:
            vectors = encode(self.data.texts, instruction)
            if id(vectors) not in measured:
                measured[id(vectors)] = (vectors, v_measure(vectors, self.data.labels, seed, self.protocol))
            return measured[id(vectors)][1]

        values = {kind: [score(instruction) for instruction in self.instructions[kind]] for kind in KINDS}
        scores = {f"{kind}_{i}": value for kind in KINDS for i, value in enumerate(values[kind])}
        correct = values["correct"]
        spread = {"correct_min": min(correct), "correct_mean": mean(correct), "correct_max": max(correct)}
        return {**scores, **spread, **compute_deltas(values)}


def compute_deltas(values: Mapping[str, Sequence[float]]) -> Scores:
    """Compute the lead of correct and implicit instructions over incorrect ones, by both definitions of the module docstring.

    Args:
        values: V-measures under "correct", "implicit" and "incorrect".

    Returns:
        delta_ci_means, delta_ci_min_max, delta_ii_means and delta_ii_min_max, on the scale of the V-measures.
    """
    incorrect = values["incorrect"]
    values_by_kind = {"ci": values["correct"], "ii": values["implicit"]}
    means = {f"delta_{name}_means": mean(kind_values) - mean(incorrect) for name, kind_values in values_by_kind.items()}
    return means | {f"delta_{name}_min_max": min(kind_values) - max(incorrect) for name, kind_values in values_by_kind.items()}


def read_authors_instructions(path: Path) -> dict[str, dict[str, list[str]]]:
    """Read the authors' instructions of their robustness sets.

    Args:
        path: A json file: set (NYTTopic, FewRel, ...) -> correct_instructions, implicit_instructions, incorrect_instructions,
            each a list. A set that lacks one of them is skipped.

    Returns:
        Lists under "correct", "implicit" and "incorrect", by set.

    Raises:
        InputError: If the file cannot be read or holds no such set.
    """
    try:
        instructions = {
            name: {kind: [str(one) for one in entry[f"{kind}_instructions"]] for kind in KINDS}
            for name, entry in _read_entries(path).items()
            if all(entry.get(f"{kind}_instructions") for kind in KINDS)
        }
    except TypeError as error:
        raise InputError(f"Cannot read instructions from {path}: {error}. Give lists of instructions.") from error
    if not instructions:
        raise InputError(f"{path} holds no set with {', '.join(f'{kind}_instructions' for kind in KINDS)}.")
    return instructions


def read_original_instruction(path: Path, name: str) -> str:
    """Read the instruction of one of the authors' sets that the robustness instructions paraphrase.

    Args:
        path: A json file: set -> instruction.
        name: A set of the kind "robustness" in ``sets.yaml``.

    Returns:
        The instruction.

    Raises:
        InputError: If the file cannot be read or has no instruction of this set.
    """
    instruction = _read_entries(path).get(name, {}).get("instruction")
    if not instruction:
        raise InputError(f"{path} has no instruction of {name}. Make it by scripts/reproduce/authors_instructions.py.")
    return str(instruction)


def _read_entries(path: Path) -> dict[str, dict[str, Any]]:
    """Read a json file of the authors' instructions: set -> kind of instruction -> instructions."""
    try:
        entries: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(entry, dict) for entry in entries.values()):
            raise ValueError("a set has no named instructions")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"Cannot read instructions from {path}: {error}. Give a json file that maps sets to lists of instructions; "
            "scripts/reproduce/authors_instructions.py makes one from the authors' task files."
        ) from error
    return entries


def load_labelled_texts(name: str) -> LabelledTexts:
    """Load the texts and labels of one of the paper's sets from the hub at its pinned revision.

    Args:
        name: A set of the kind "robustness" in ``sets.yaml``.

    Returns:
        The texts and their labels.

    Raises:
        InputError: If the hub cannot be reached.
    """
    known_set = find_set("robustness", name)
    source, revision = known_set.pinned
    rows = read_hub(source, revision, known_set.config)
    texts, labels = ([str(row[column]) for row in rows] for column in ("text", "cluster"))
    return LabelledTexts(name, texts, labels, f"{source}@{revision[:8]}", known_set.licence, known_set.citation)


def load_robustness(name: str, instructions: Mapping[str, list[str]], protocol: str = "k-means") -> InstructionRobustness:
    """Load the robustness task of one of the paper's sets.

    Args:
        name: A set of the kind "robustness" in ``sets.yaml``.
        instructions: Lists under "correct", "implicit" and "incorrect".
        protocol: "k-means" or "paper", see ``group_vectors``.

    Returns:
        The task.

    Raises:
        InputError: If the hub cannot be reached.
    """
    return InstructionRobustness(load_labelled_texts(name), instructions, protocol)
