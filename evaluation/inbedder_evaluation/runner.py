"""Evaluation of embedders over tasks and seeds, one cell at a time; an interrupted run resumes."""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from inbedder.errors import InputError, ModelError
from inbedder.vectors.vectors import Vectors
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.item_results import Outcomes, compute_interval, load_outcomes, save_outcomes
from inbedder_evaluation.results import Cell, load_cells, save_cells
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS
from inbedder_evaluation.tasks.task import AsksSeveral, Encode, Itemized, Task, TaskInfo

KINDS = ("raw", "centred")
SEEDS = range(10)


def run(
    embedders: Sequence[Embedder],
    tasks: Sequence[Task],
    path: Path,
    seeds: Sequence[int] = SEEDS,
    report: Callable[[Cell], None] = lambda _cell: None,
    items: Path | None = None,
    *,
    need_items: bool = False,
    kinds: Sequence[str] = KINDS,
) -> list[Cell]:
    """Measure embedders on tasks, skipping cells that are already in the results file.

    Args:
        embedders: The embedders to measure.
        tasks: The tasks to measure them on.
        path: Results file; its finished cells are kept and not recomputed.
        seeds: Seeds for the tasks that take one.
        report: Called with each cell, whether computed or loaded.
        items: Folder to save the items of each cell in (``item_results``); None saves none.
        need_items: Whether to measure a finished cell again when its items are not saved.
        kinds: Kinds of vectors: "raw", "centred" or both.

    Returns:
        The cells of this run, in order.

    Raises:
        ModelError: If an instruction does not reach the prompt of a model that should read it.
        InputError: If two embedders have the same name.
    """
    repeated_names = [name for name, count in Counter(embedder.name for embedder in embedders).items() if count > 1]
    if repeated_names:
        raise InputError(
            f"Two models are called {repeated_names[0]!r}. Write them to separate results files, or give one by a different path."
        )
    finished_cells = {cell.key: cell for cell in load_cells(path)}
    planned = []
    questions = _collect_questions(tasks)
    cells_a_model = len(kinds) * sum(len(seeds) if task.seeded else 1 for task in tasks)
    with tqdm(total=len(embedders) * cells_a_model, desc="Measuring", unit=" cells", disable=None) as bar:
        for embedder in embedders:
            memory, source = _Remembered(embedder, questions), ""
            for task in tasks:
                if task.info.source != source:  # the tasks of one corpus share its vectors
                    memory, source = _Remembered(embedder, questions), task.info.source
                bar.set_postfix_str(f"{embedder.name}: {task.info.name}")
                for cell in _measure_cells(memory, task, kinds, seeds, finished_cells, Items(items, need_items)):
                    finished_cells[cell.key] = cell
                    save_cells(finished_cells.values(), path)
                    planned.append(cell)
                    report(cell)
                    bar.update()
    return planned


class Items(NamedTuple):
    """Where items are saved, and whether finished cells need theirs."""

    folder: Path | None
    needs_items: bool


def _measure_cells(
    memory: _Remembered,
    task: Task,
    kinds: Sequence[str],
    seeds: Sequence[int],
    finished_cells: dict[Any, Cell],
    items: Items,
) -> Iterator[Cell]:
    embedder = memory.embedder
    text, instruction = task.get_first_input()
    prompt = embedder.prompt(text, instruction)
    if embedder.instructed and embedder.verbatim and instruction not in prompt:
        raise ModelError(f"The instruction {instruction!r} did not reach the prompt of {embedder.name}: {prompt!r}.")
    for kind in kinds if embedder.similarity is None else KINDS[:1]:
        for seed in seeds if task.seeded else (0,):
            key = (embedder.name, embedder.revision, task.info.name, task.info.revision, kind, seed)
            lacking = items.needs_items and items.folder is not None and load_outcomes(items.folder, key) is None
            if key in finished_cells and not (lacking and isinstance(task, Itemized)):
                yield finished_cells[key]
                continue
            started = time.time()
            main_score, outcomes = _measure_outcomes(task, memory, kind, seed)
            if items.folder is not None and isinstance(task, Itemized):
                save_outcomes(items.folder, key, outcomes)
            yield Cell(
                *key,
                main_score=main_score,
                scores={name: round(float(score), 2) for name, score in outcomes.scores.items()},
                first_prompt=prompt if task.info.quoted else "",
                seconds=round(time.time() - started, 1),
                metadata=describe_run(task.info) | ({} if embedder.spec is None else {"spec": dict(embedder.spec)}),
                interval=None if task.seeded else _round_interval(compute_interval(outcomes)),
            )


def _measure_outcomes(task: Task, memory: _Remembered, kind: str, seed: int) -> tuple[str, Outcomes]:
    similarity = memory.embedder.similarity
    if similarity is not None and isinstance(task, ConditionalSTS):
        return "spearman", task.evaluate_pairs(similarity)
    encode = memory.encode(kind)
    outcomes = task.evaluate_items(encode, seed) if isinstance(task, Itemized) else Outcomes(task.evaluate(encode, seed))
    return task.info.main_score, outcomes


def _round_interval(ends: tuple[float, float] | None) -> list[float] | None:
    return None if ends is None else [round(end, 2) for end in ends]


def center_vectors(vectors: Vectors) -> Vectors:
    """Subtract the mean from vectors, shape (n, d)."""
    return np.asarray(vectors - vectors.mean(axis=0), dtype=np.float32)


class _Remembered:
    """An embedder that encodes each list of texts once, for both kinds of vectors, all seeds and all tasks of a corpus.

    Within a list, a text that repeats under the same instruction is encoded once. An embedder that ignores the instruction
    returns the same array for all instructions. All questions that the tasks ask of the same texts are encoded together.
    """

    def __init__(self, embedder: Embedder, instructions: Mapping[tuple[str, ...], Sequence[str]]) -> None:
        self.embedder = embedder
        self._instructions = instructions
        self._vectors: dict[Any, Vectors] = {}

    def encode(self, kind: str) -> Encode:
        """Make the function that tasks call for one kind of vectors."""

        def encode(texts: Sequence[str], instruction: str | Sequence[str]) -> Vectors:
            if not self.embedder.instructed:
                instruction = ""
            per_text = (instruction,) * len(texts) if isinstance(instruction, str) else tuple(instruction)
            text_key = tuple(texts)
            if ("raw", text_key, per_text) not in self._vectors:
                self._vectors |= self._encode_questions(text_key, per_text)
            vectors = self._vectors["raw", text_key, per_text]
            if kind == "raw":
                return vectors
            if self.embedder.instructed:  # there may be many instructions: cache only their raw vectors
                return center_vectors(vectors)
            return self._vectors.setdefault((kind, text_key, per_text), center_vectors(vectors))

        return encode

    def _encode_questions(self, texts: tuple[str, ...], per_text: tuple[str, ...]) -> dict[Any, Vectors]:
        """Encode the texts under their instructions and, where it saves time, under all other questions asked of them."""
        instructions = self._instructions.get(texts, ())
        encode_many, key = self.embedder.encode_many, ("raw", texts, per_text)
        if encode_many is None or len(set(per_text)) > 1 or per_text[0] not in instructions:
            return {key: self._encode_once(texts, per_text)}
        place = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        rows = [place[text] for text in texts]
        vectors = encode_many(list(place), instructions)
        return {
            ("raw", texts, (instruction,) * len(texts)): instruction_vectors[rows]
            for instruction, instruction_vectors in zip(instructions, vectors, strict=True)
        }

    def _encode_once(self, texts: tuple[str, ...], per_text: tuple[str, ...]) -> Vectors:
        pairs = list(zip(texts, per_text, strict=True))
        place = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
        instructions = [instruction for _, instruction in place]
        shared = instructions[0] if len(set(per_text)) == 1 else instructions
        return self.embedder.encode([text for text, _ in place], shared)[[place[pair] for pair in pairs]]


def _collect_questions(tasks: Sequence[Task]) -> dict[tuple[str, ...], list[str]]:
    """Collect the questions that tasks ask of each list of texts."""
    questions: dict[tuple[str, ...], list[str]] = {}
    for task in tasks:
        if isinstance(task, AsksSeveral):
            texts = tuple(task.texts)
            questions[texts] = list(dict.fromkeys([*questions.get(texts, ()), *task.instructions]))
    return questions


def format_command() -> str:
    """Format the running command as a user would type it."""
    script = Path(sys.argv[0])
    package = "inbedder_evaluation"
    program = f"python -m {package}.{script.stem}" if script.parent.name == package else "inbedder"
    return " ".join([program, *map(shlex.quote, sys.argv[1:])])


def describe_run(info: TaskInfo) -> dict[str, Any]:
    """Record the provenance of a measurement.

    Args:
        info: Description of the task.

    Returns:
        Command, source, licence, machine and versions.
    """
    return {
        "command": format_command(),
        "source": info.source,
        "licence": info.licence,
        "machine": f"{platform.machine()}, {platform.system()}",
        "versions": {name: version(name) for name in ("inbedder", "torch", "transformers", "numpy", "scikit-learn")},
    }
