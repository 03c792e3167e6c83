"""The labelled sets that groupings are measured on: texts, one label each, the question that asks for it, and their vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from evaluation.tasks.base import instructions_of
from evaluation.tasks.corpus import known_corpus
from evaluation.tasks.sets import KnownSet, known_sets
from evaluation.tasks.standard import COLUMNS
from inbedder.tables import read_rows


@dataclass(frozen=True)
class LabelledSet:
    """Texts of one set under one criterion."""

    name: str
    """Set and criterion."""
    instruction: str
    """What asks for the label."""
    texts: list[str]
    """n texts."""
    labels: list[str]
    """n labels."""


def labelled_sets(folder: Path, limit: int) -> Iterator[LabelledSet]:
    """Every set of ``sets.yaml`` that has labels and a file.

    Args:
        folder: Where the sets lie, one folder each.
        limit: At most so many rows of each, drawn with seed 0.

    Yields:
        A set per criterion; a criterion that is there twice is given once.
    """
    seen: set[tuple[str, str]] = set()
    for known in known_sets():
        if known.file is None or known.shipped:
            continue
        found = _of_corpus(known, folder, limit) if known.kind == "corpus" else _of_one_label(known, folder, limit)
        for labelled in found:
            key = (known.name, labelled.instruction)
            if key not in seen:
                seen.add(key)
                yield labelled


def _of_corpus(known: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    corpus = known_corpus(known.name, folder, limit)
    return [
        LabelledSet(f"{known.name} {criterion}", instruction, corpus.texts, labels)
        for criterion, instruction, labels in zip(corpus.criteria, corpus.instructions, corpus.labels, strict=True)
    ]


def _of_one_label(known: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    if known.kind not in ("clustering", "classification"):
        return []
    text, label = (known.columns or COLUMNS[known.kind]).values()
    rows = [(str(row[text]), str(row[label])) for row in read_rows(str(folder / str(known.file))) if row.get(text)]
    rows = Random(0).sample(rows, limit) if len(rows) > limit else rows
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    return [LabelledSet(known.name, instructions_of("standard")[known.name], texts, labels)]
