"""The labelled sets that groupings are measured on: texts, one label each, the question that asks for it, and their vectors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from inbedder import InBedder
from inbedder.io.files import atomic_write
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
    """What asks for the label."""
    texts: list[str]
    """n texts."""
    labels: list[str]
    """n labels."""


def load_labelled_sets(folder: Path, limit: int) -> Iterator[LabelledSet]:
    """Every set of ``sets.yaml`` that has labels and a file.

    Args:
        folder: Where the sets lie, one folder each.
        limit: At most so many rows of each, drawn with seed 0.

    Yields:
        A set per criterion; a criterion that is there twice is given once.
    """
    names_seen: set[tuple[str, str]] = set()
    for known_set in read_sets():
        if known_set.file is None or known_set.shipped:
            continue
        labelled_sets = (
            _of_corpus(known_set, folder, limit) if known_set.kind == "corpus" else _of_one_label(known_set, folder, limit)
        )
        for labelled in labelled_sets:
            key = (known_set.name, labelled.instruction)
            if key not in names_seen:
                names_seen.add(key)
                yield labelled


def _of_corpus(known_set: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    corpus = load_corpus(known_set.name, folder, limit)
    return [
        LabelledSet(f"{known_set.name} {criterion}", instruction, corpus.texts, labels)
        for criterion, instruction, labels in zip(corpus.criteria, corpus.instructions, corpus.labels, strict=True)
    ]


def _of_one_label(known_set: KnownSet, folder: Path, limit: int) -> list[LabelledSet]:
    instruction = read_instructions("standard").get(known_set.name)
    if known_set.kind not in ("clustering", "classification") or instruction is None:
        return []
    text, label = (known_set.columns or COLUMNS[known_set.kind]).values()
    rows = [(str(row[text]), str(row[label])) for row in read_rows(str(folder / str(known_set.file))) if row.get(text)]
    rows = Random(0).sample(rows, limit) if len(rows) > limit else rows
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    return [LabelledSet(known_set.name, instruction, texts, labels)]


def measure_sets(
    script: str, limit: int, measure: Callable[[LabelledSet, InBedder], dict[str, Any]]
) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """Read the command line and measure every set with `mini`, printing each as it is done.

    Args:
        script: The script's docstring, whose third line is its command.
        limit: At most so many rows of each set.
        measure: From a set and the model to what was found.

    Returns:
        The file of the results, how they were made, and what was found for each set.
    """
    parser = argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--machine", default="unnamed")
    options = parser.parse_args()
    model, results = InBedder(cache=options.cache), []
    for labelled in load_labelled_sets(options.data, limit):
        results.append(measure(labelled, model))
        print(json.dumps(results[-1]), flush=True)
    description = f"mini (revision {model.revision}), at most {limit} rows of each set"
    return options.output, {"command": script.splitlines()[2], "description": description, "machine": options.machine}, results


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write results, whole or not at all.

    Args:
        path: The file.
        results: What it holds.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
