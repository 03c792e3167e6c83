"""Runs embedders over tasks and seeds, cell by cell, and never twice: an interrupted run goes on where it stopped."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.embedders import Embedder, Vectors
from evaluation.results import Cell, load_cells, save_cells
from evaluation.tasks.base import Encode, Task
from inbedder.errors import ModelError

KINDS = ("raw", "centred")
SEEDS = range(10)


def run(
    embedders: Sequence[Embedder],
    tasks: Sequence[Task],
    path: Path,
    seeds: Sequence[int] = SEEDS,
    report: Callable[[Cell], None] = lambda _cell: None,
) -> list[Cell]:
    """Measure.

    Args:
        embedders: What is measured.
        tasks: On what.
        path: Results file; its finished cells are kept and not computed again.
        seeds: Seeds of the tasks that know one.
        report: Called with each cell, computed or found.

    Returns:
        The cells of this run, in order.

    Raises:
        ModelError: When an instruction does not reach the prompt of a model that should read it.
    """
    known = {cell.key: cell for cell in load_cells(path)}
    asked = []
    for embedder in embedders:
        encode, source = _remembering(embedder.encode), ""
        for task in tasks:
            if task.info.source != source:  # the tasks of one corpus share its vectors
                encode, source = _remembering(embedder.encode), task.info.source
            for cell in _cells(embedder, task, encode, seeds, known):
                known[cell.key] = cell
                save_cells(known.values(), path)
                asked.append(cell)
                report(cell)
    return asked


def _cells(embedder: Embedder, task: Task, encode: Encode, seeds: Sequence[int], known: dict[Any, Cell]) -> Iterator[Cell]:
    text, instruction = task.first_input()
    prompt = embedder.prompt(text, instruction)
    if embedder.instructed and instruction not in prompt:
        raise ModelError(f"The instruction {instruction!r} did not reach the prompt of {embedder.name}: {prompt!r}.")
    for kind in KINDS:
        for seed in seeds if task.seeded else (0,):
            key = (embedder.name, embedder.revision, task.info.name, task.info.revision, kind, seed)
            if key in known:
                yield known[key]
                continue
            started = time.time()
            scores = task.evaluate(encode if kind == "raw" else _centred(encode), seed)
            yield Cell(
                *key,
                main_score=task.info.main_score,
                scores={name: round(float(score), 2) for name, score in scores.items()},
                first_prompt=prompt,
                seconds=round(time.time() - started, 1),
                about=_about(task),
            )


def _remembering(encode: Encode) -> Encode:
    """Encode each list of texts once, for the second kind of vectors, the other seeds and the corpus's other tasks."""
    seen: dict[Any, Vectors] = {}

    def remembered(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        key = (tuple(texts), instruction if isinstance(instruction, str) else tuple(instruction))
        if key not in seen:
            seen[key] = encode(texts, instruction)
        return seen[key]

    return remembered


def _centred(encode: Encode) -> Encode:
    def centred(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
        vectors = encode(texts, instruction)
        return np.asarray(vectors - vectors.mean(axis=0), dtype=np.float32)

    return centred


def _about(task: Task) -> dict[str, Any]:
    return {
        "command": "inbedder " + " ".join(sys.argv[1:]),
        "source": task.info.source,
        "licence": task.info.licence,
        "machine": f"{platform.machine()}, {platform.system()}",
        "versions": {name: version(name) for name in ("inbedder", "torch", "transformers", "numpy", "scikit-learn")},
    }
