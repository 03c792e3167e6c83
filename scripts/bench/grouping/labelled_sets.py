"""Load labelled sets: texts with a label each and the question that asks for the label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from inbedder.io.tables import read_rows
from inbedder_evaluation.tasks.corpus import load_corpus
from inbedder_evaluation.tasks.sets import KnownSet, read_sets
from inbedder_evaluation.tasks.standard import COLUMNS
from inbedder_evaluation.tasks.task import read_instructions


@dataclass(frozen=True)
class LabelledSet:
    """Texts of one set under one criterion."""

    name: str
    """Set and criterion."""
    instruction: str
    """The question that asks for the label."""
    texts: list[str]
    """n texts."""
    labels: list[str]
    """n labels."""


def load_labelled_sets(folder: Path, limit: int) -> Iterator[LabelledSet]:
    """Load every set of ``sets.yaml`` that has labels and whose file is in the folder.

    Args:
        folder: The folder of the sets, one folder per set.
        limit: Maximum number of rows of a set, sampled with seed 0.

    Yields:
        A set per criterion, without duplicates.
    """
    names_seen: set[tuple[str, str]] = set()
    for known_set in read_sets():
        if known_set.file is None or known_set.shipped or not (folder / known_set.file).exists():
            continue
        labelled_sets = (
            _split_by_criterion(known_set, folder, limit)
            if known_set.kind == "corpus"
            else _load_single_label(known_set, folder, limit)
        )
        for labelled in labelled_sets:
            key = (known_set.name, labelled.instruction)
            if key not in names_seen:
                names_seen.add(key)
                yield labelled


def _split_by_criterion(known_set: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    corpus = load_corpus(known_set.name, folder, limit)
    return [
        LabelledSet(f"{known_set.name} {criterion}", instruction, corpus.texts, labels)
        for criterion, instruction, labels in zip(corpus.criteria, corpus.instructions, corpus.labels, strict=True)
    ]


def _load_single_label(known_set: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    instruction = read_instructions("standard").get(known_set.name)
    if known_set.kind not in ("clustering", "classification") or instruction is None:
        return []
    text, label = (known_set.columns or COLUMNS[known_set.kind]).values()
    rows = [(str(row[text]), str(row[label])) for row in read_rows(str(folder / str(known_set.file))) if row.get(text)]
    rows = Random(0).sample(rows, limit) if len(rows) > limit else rows
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    return [LabelledSet(known_set.name, instruction, texts, labels)]
