"""Pairs with hard negatives mined from tasks that have inputs and outputs (INSTRUCTOR paper, section 2.3).

    python -m inbedder_finetune.mining TASKS -o pairs.jsonl [--encoder all-MiniLM-L6-v2] [--negatives 1] [--most N] [--seed 0]

With E any embedder, x_i an example's input and y_i its output, example j is scored for example i by::

    s_pos = cos(E(x_i), E(x_j)) + cos(E(y_i), E(y_j))        s_neg = cos(E(x_i), E(x_j)) - cos(E(y_i), E(y_j))

The best s_pos is i's positive, the best s_neg its hard negatives. In a classification task the output's cosine is replaced by
whether the labels are equal, so that the nearest example of the same label and the nearest of other labels are found. All
vectors of [E(x), E(y)] are of one length, so both are exact nearest-neighbour searches: of [E(x), E(y)] and of [E(x), -E(y)].
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer
from tqdm import tqdm

from inbedder.errors import InbedderError, InputError
from inbedder.io.files import atomic_write, check_target
from inbedder.options import BASE_NAME
from inbedder.vectors import unit
from inbedder_finetune.sources import file_records

LOOKED_AT = 32
"""Nearest examples among which one with another text, and for negatives another output, is looked for."""
EXAMPLES_A_LABEL = 20
"""A task whose outputs come so often each, on average, is a classification."""
LABEL = 2.0
"""Length of a label's vector: labels weigh more than any similarity of inputs."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Pairs with hard negatives from tasks.")


class Embedder(Protocol):
    """What embeds texts: an InBedder, a SentenceTransformer, or anything like them."""

    def encode(self, sentences: list[str], /) -> Any:
        """Vectors of texts, shape (n, d)."""


@dataclass(frozen=True)
class Task:
    """A task with its examples."""

    name: str
    """Becomes the pairs' task_id."""
    instructions: tuple[str, ...]
    """What to do, in one or several wordings."""
    inputs: tuple[str, ...]
    """x."""
    outputs: tuple[str, ...]
    """y, one an input."""

    @property
    def is_classification(self) -> bool:
        """Whether the outputs are labels, by how often each comes."""
        return len(set(self.outputs)) * EXAMPLES_A_LABEL <= len(self.outputs)


def read_tasks(path: Path | str) -> list[Task]:
    """Read tasks.

    Args:
        path: A Super-NaturalInstructions task (json with Definition and Instances), a folder of them, a folder with one such
            task's ``task.json`` and ``instances.jsonl.gz``, or a folder of Instruction Induction (``instructions.json`` beside
            rows with task, input and output).

    Returns:
        The tasks by name. Examples whose input or output is no text are left out.

    Raises:
        InputError: When there is none.
    """
    path = Path(path)
    tasks = list(_tasks(path)) if path.exists() else []
    if not tasks:
        raise InputError(f"No task in {path}. Give a json file with Definition and Instances, or a folder of such files.")
    return tasks


def _tasks(path: Path) -> Iterator[Task]:
    if path.is_dir() and (path / "instructions.json").exists():
        worded = json.loads((path / "instructions.json").read_text(encoding="utf-8"))
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in worded}
        for file in sorted(path.glob("*.jsonl*")):
            for _, row in file_records(file):
                rows.setdefault(row["task"], []).append(row)
        yield from (
            _task(name, worded[name]["instructions"], task_rows) for name, task_rows in sorted(rows.items()) if name in worded
        )
    elif path.is_dir() and (path / "task.json").exists():
        about = json.loads((path / "task.json").read_text(encoding="utf-8"))
        task_rows = [row for file in sorted(path.glob("instances.*")) for _, row in file_records(file)]
        yield _task(path.name, about["Definition"], task_rows)
    else:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            about = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(about, dict) and {"Definition", "Instances"} <= set(about):
                yield _task(file.stem, about["Definition"], about["Instances"])


def _task(name: str, instructions: str | Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Task:
    worded = (instructions,) if isinstance(instructions, str) else tuple(instructions)
    pairs: dict[str, str] = {}
    for row in rows:
        output = row.get("output")
        output = output[0] if isinstance(output, list) and output else output
        if isinstance(row.get("input"), str) and isinstance(output, str) and row["input"].strip() and output.strip():
            pairs.setdefault(row["input"], output)
    return Task(name, worded, tuple(pairs), tuple(pairs.values()))


def mine(task: Task, encoder: Embedder, *, negatives: int = 1, most: int | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Mine the pairs of one task.

    Args:
        task: Examples and instructions.
        encoder: E.
        negatives: Hard negatives per pair.
        most: Keep only so many pairs, those of the highest s_pos + s_neg; None keeps all.
        seed: Seed of the drawn wordings of the instruction.

    Returns:
        MEDI rows (see ``pairs``): query, pos and neg (a list), all inputs under one wording, and task_id. Examples without a
        positive or without enough negatives among the nearest have no row.
    """
    if len(task.inputs) < 2 + negatives:
        return []
    inputs = unit(encoder.encode(list(task.inputs)))
    outputs = _labels(task.outputs) if task.is_classification else unit(encoder.encode(list(task.outputs)))
    near, far = _nearest(inputs, outputs), _nearest(inputs, -outputs, queries=outputs)
    draw = random.Random(f"{seed} {task.name}")
    found = []
    for i, (output, alike, unlike) in enumerate(zip(task.outputs, near, far, strict=True)):
        instruction = as_instruction(draw.choice(task.instructions))
        same = [int(j) for j in alike if j != i and (not task.is_classification or task.outputs[j] == output)][:1]
        other = [int(j) for j in unlike if task.outputs[j] != output and int(j) not in [i, *same]][:negatives]
        if same and len(other) == negatives:
            p, n = same[0], other[0]
            score = float(inputs[i] @ (inputs[p] + inputs[n]) + outputs[i] @ (outputs[p] - outputs[n]))
            x, positive, *wrong = ([instruction, task.inputs[j]] for j in (i, *same, *other))
            found.append((score, {"query": x, "pos": positive, "neg": wrong, "task_id": task.name}))
    if most is not None and len(found) > most:
        kept = sorted(range(len(found)), key=lambda place: -found[place][0])[:most]
        found = [found[place] for place in sorted(kept)]
    return [row for _, row in found]


def as_instruction(wording: str) -> str:
    """The instruction under which a task's inputs are embedded, in the paper's wording.

    Args:
        wording: What the task asks for.

    Returns:
        One line that ends where the text begins.
    """
    return f"Represent the example for the following task: {' '.join(wording.split()).rstrip('.:;,')}; Input: "


def _labels(outputs: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    known, places = np.unique(np.asarray(outputs), return_inverse=True)
    return LABEL * np.eye(len(known), dtype=np.float32)[places]


def _nearest(
    inputs: np.ndarray[Any, np.dtype[np.float32]],
    outputs: np.ndarray[Any, np.dtype[np.float32]],
    queries: np.ndarray[Any, np.dtype[np.float32]] | None = None,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The nearest examples of each, by exact search, shape (n, at most ``LOOKED_AT``)."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=min(len(inputs), LOOKED_AT), algorithm="brute")
    search.fit(np.hstack([inputs, outputs]))
    found: np.ndarray[Any, np.dtype[np.int64]] = search.kneighbors(
        np.hstack([inputs, outputs if queries is None else queries]), return_distance=False
    )
    return found


def mine_file(
    paths: Sequence[Path | str],
    output: Path | str,
    encoder: Embedder,
    *,
    negatives: int = 1,
    most: int | None = None,
    seed: int = 0,
) -> dict[str, tuple[int, int]]:
    """Mine all tasks of some files and folders into one jsonl file, written whole or not at all.

    Args:
        paths: As for ``read_tasks``.
        output: A .jsonl file.
        encoder: E.
        negatives: As for ``mine``.
        most: As for ``mine``, of each task.
        seed: As for ``mine``.

    Returns:
        Of each task the examples and the pairs.

    Raises:
        InputError: When a path holds no task, the output is no .jsonl file, is read itself or cannot be written.
    """
    if Path(output).suffix != ".jsonl":
        raise InputError(f"{output} must be a .jsonl file.")
    folders = [Path(path) for path in paths if (Path(path) / "instructions.json").exists()]
    check_target(output, [*paths, *(file for folder in folders for file in folder.glob("*.jsonl*"))])
    tasks = [task for path in paths for task in read_tasks(path)]
    counts = {}
    with (
        atomic_write(output) as temporary,
        temporary.open("w", encoding="utf-8") as file,
        tqdm(total=sum(len(task.inputs) for task in tasks), unit="examples", disable=None) as bar,
    ):
        for task in tasks:
            bar.set_description(task.name)
            rows = mine(task, encoder, negatives=negatives, most=most, seed=seed)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            counts[task.name] = (len(task.inputs), len(rows))
            bar.update(len(task.inputs))
    return counts


@dataclass(frozen=True)
class _Named:
    """A sentence-transformers model by name."""

    name: str

    def encode(self, sentences: list[str], /) -> Any:
        """Vectors of texts."""
        from inbedder.encoding.reencode import sentence_vectors

        return sentence_vectors(sentences, self.name)


@app.command()
def main(
    tasks: Annotated[list[Path], typer.Argument(help="Tasks: json files with Definition and Instances, or folders.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .jsonl file.")] = Path("pairs.jsonl"),
    encoder: Annotated[str, typer.Option(help="A sentence-transformers model.")] = BASE_NAME,
    negatives: Annotated[int, typer.Option(min=1, help="Hard negatives per pair.")] = 1,
    most: Annotated[int | None, typer.Option(min=1, help="At most so many pairs per task, the best.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the drawn wordings.")] = 0,
) -> None:
    """Mine pairs with hard negatives for `method: contrastive` recipes."""
    counts = mine_file(tasks, output, _Named(encoder), negatives=negatives, most=most, seed=seed)
    for name, (examples, pairs) in counts.items():
        typer.echo(f"{name}: {pairs:,} pairs of {examples:,} examples", err=True)


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
