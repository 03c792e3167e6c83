"""Mining of pairs with hard negatives from tasks with inputs and outputs (INSTRUCTOR paper, section 2.3).

    python -m inbedder_finetune.mining TASKS -o pairs.jsonl [--encoder all-MiniLM-L6-v2] [--negatives 1] [--most N] [--seed 0]

With an embedder E, the input x_i and the output y_i of an example, example j gets two scores for example i::

    s_pos = cos(E(x_i), E(x_j)) + cos(E(y_i), E(y_j))        s_neg = cos(E(x_i), E(x_j)) - cos(E(y_i), E(y_j))

The example with the best s_pos is the positive of i; those with the best s_neg are its hard negatives. In a classification task
equality of labels replaces the cosine of outputs: the positive is the nearest example of the same label, the negatives are the
nearest of other labels. All vectors [E(x), E(y)] have the same length, so both are exact nearest-neighbour searches: for
[E(x), E(y)] and for [E(x), -E(y)].
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
from inbedder.runtime.user_paths import expand_path
from inbedder.vectors.vectors import normalize_vectors
from inbedder_finetune.sources import read_records

MAX_NEIGHBOURS = 32
"""Number of nearest examples that are searched for a positive and for negatives."""
MIN_EXAMPLES_PER_LABEL = 20
"""Mean number of examples per distinct output from which a task counts as a classification."""
LABEL_NORM = 2.0
"""Length of a label's vector, which makes labels outweigh any similarity of inputs."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Mine pairs with hard negatives from tasks.")


class Embedder(Protocol):
    """Interface of an embedding model, such as InBedder or SentenceTransformer."""

    def encode(self, sentences: list[str], /) -> Any:
        """Embed texts; returns vectors of shape (n, d)."""


@dataclass(frozen=True)
class Task:
    """A task with its examples."""

    name: str
    """Name of the task, the ``task_id`` of its pairs."""
    instructions: tuple[str, ...]
    """One or more wordings of the task."""
    inputs: tuple[str, ...]
    """x, one text per example."""
    outputs: tuple[str, ...]
    """y, one text per example."""

    @property
    def is_classification(self) -> bool:
        """Whether the outputs are labels, judged by how often each occurs."""
        return len(set(self.outputs)) * MIN_EXAMPLES_PER_LABEL <= len(self.outputs)


def read_tasks(path: Path | str) -> list[Task]:
    """Read tasks from a file or folder.

    Args:
        path: A Super-NaturalInstructions task (json with Definition and Instances), a folder of them, a folder with one such
            task's ``task.json`` and ``instances.jsonl.gz``, or a folder of Instruction Induction (``instructions.json`` next to
            rows with task, input and output).

    Returns:
        The tasks, sorted by name. Examples without a text as input and output are skipped.

    Raises:
        InputError: If no task is found.
    """
    path = expand_path(path)
    tasks = list(_read_task_files(path)) if path.exists() else []
    if not tasks:
        raise InputError(f"No task in {path}. Give a json file with Definition and Instances, or a folder of such files.")
    return tasks


def _read_task_files(path: Path) -> Iterator[Task]:
    if path.is_dir() and (path / "instructions.json").exists():
        definitions = json.loads((path / "instructions.json").read_text(encoding="utf-8"))
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in definitions}
        for file in sorted(path.glob("*.jsonl*")):
            for _, row in read_records(file):
                rows.setdefault(row["task"], []).append(row)
        yield from (
            _make_task(name, definitions[name]["instructions"], task_rows)
            for name, task_rows in sorted(rows.items())
            if name in definitions
        )
    elif path.is_dir() and (path / "task.json").exists():
        content = json.loads((path / "task.json").read_text(encoding="utf-8"))
        task_rows = [row for file in sorted(path.glob("instances.*")) for _, row in read_records(file)]
        yield _make_task(path.name, content["Definition"], task_rows)
    else:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            content = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(content, dict) and {"Definition", "Instances"} <= set(content):
                yield _make_task(file.stem, content["Definition"], content["Instances"])


def _make_task(name: str, instructions: str | Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Task:
    wordings = (instructions,) if isinstance(instructions, str) else tuple(instructions)
    pairs: dict[str, str] = {}
    for row in rows:
        output = row.get("output")
        output = output[0] if isinstance(output, list) and output else output
        if isinstance(row.get("input"), str) and isinstance(output, str) and row["input"].strip() and output.strip():
            pairs.setdefault(row["input"], output)
    return Task(name, wordings, tuple(pairs), tuple(pairs.values()))


def mine_pairs(
    task: Task, encoder: Embedder, *, negatives: int = 1, max_pairs: int | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """Mine the pairs of one task.

    Args:
        task: Examples and instructions.
        encoder: The embedding model E.
        negatives: Number of hard negatives per pair.
        max_pairs: Maximum number of pairs; those with the highest s_pos + s_neg are kept. None keeps all.
        seed: Seed of the sampled wordings of the instruction.

    Returns:
        MEDI rows (see ``contrastive.pairs``) with query, pos, neg (a list) and task_id; all inputs of a row have the same
        wording. Examples without a positive or without enough negatives among their nearest examples have no row.
    """
    if len(task.inputs) < 2 + negatives:
        return []
    inputs = normalize_vectors(encoder.encode(list(task.inputs)))
    outputs = _encode_labels(task.outputs) if task.is_classification else normalize_vectors(encoder.encode(list(task.outputs)))
    similar_examples, contrasting_examples = _find_nearest(inputs, outputs), _find_nearest(inputs, -outputs, queries=outputs)
    rng = random.Random(f"{seed} {task.name}")
    scored_rows = []
    for i, (output, similar, contrasting) in enumerate(zip(task.outputs, similar_examples, contrasting_examples, strict=True)):
        instruction = as_instruction(rng.choice(task.instructions))
        positives = [int(j) for j in similar if j != i and (not task.is_classification or task.outputs[j] == output)][:1]
        hard = [int(j) for j in contrasting if task.outputs[j] != output and int(j) not in [i, *positives]][:negatives]
        if positives and len(hard) == negatives:
            p, n = positives[0], hard[0]
            score = float(inputs[i] @ (inputs[p] + inputs[n]) + outputs[i] @ (outputs[p] - outputs[n]))
            query, pos, *neg = ([instruction, task.inputs[j]] for j in (i, *positives, *hard))
            scored_rows.append((score, {"query": query, "pos": pos, "neg": neg, "task_id": task.name}))
    if max_pairs is not None and len(scored_rows) > max_pairs:
        best = sorted(range(len(scored_rows)), key=lambda index: -scored_rows[index][0])[:max_pairs]
        scored_rows = [scored_rows[index] for index in sorted(best)]
    return [row for _, row in scored_rows]


def as_instruction(wording: str) -> str:
    """Phrase a task as an instruction for embeddings, in the paper's wording.

    Args:
        wording: The definition of the task.

    Returns:
        One line; the text follows it directly.

    Example:
        >>> as_instruction("Name the topic.")
        'Represent the example for the following task: Name the topic; Input: '
    """
    return f"Represent the example for the following task: {' '.join(wording.split()).rstrip('.:;,')}; Input: "


def _encode_labels(outputs: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    labels, label_indices = np.unique(np.asarray(outputs), return_inverse=True)
    return LABEL_NORM * np.eye(len(labels), dtype=np.float32)[label_indices]


def _find_nearest(
    inputs: np.ndarray[Any, np.dtype[np.float32]],
    outputs: np.ndarray[Any, np.dtype[np.float32]],
    queries: np.ndarray[Any, np.dtype[np.float32]] | None = None,
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Find the nearest examples of each example exactly; returns indices of shape (n, up to ``MAX_NEIGHBOURS``)."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=min(len(inputs), MAX_NEIGHBOURS), algorithm="brute")
    search.fit(np.hstack([inputs, outputs]))
    indices: np.ndarray[Any, np.dtype[np.int64]] = search.kneighbors(
        np.hstack([inputs, outputs if queries is None else queries]), return_distance=False
    )
    return indices


def mine_file(
    paths: Sequence[Path | str],
    output: Path | str,
    encoder: Embedder,
    *,
    negatives: int = 1,
    max_pairs: int | None = None,
    seed: int = 0,
) -> dict[str, tuple[int, int]]:
    """Mine the tasks of files and folders into one jsonl file, which is written atomically.

    Args:
        paths: Files and folders that ``read_tasks`` can read.
        output: A .jsonl file.
        encoder: The embedding model E.
        negatives: Number of hard negatives per pair.
        max_pairs: Maximum number of pairs per task; None keeps all.
        seed: Seed of the sampled wordings of the instructions.

    Returns:
        Task name -> number of examples, number of pairs.

    Raises:
        InputError: If a path holds no task, or the output is not a .jsonl file, is one of the inputs, or cannot be written.
    """
    if Path(output).suffix != ".jsonl":
        raise InputError(f"{output} must be a .jsonl file.")
    sources = [expand_path(path) for path in paths]
    folders = [path for path in sources if (path / "instructions.json").exists()]
    check_target(output, [*sources, *(file for folder in folders for file in folder.glob("*.jsonl*"))])
    tasks = [task for path in sources for task in read_tasks(path)]
    counts = {}
    with (
        atomic_write(output) as temporary,
        temporary.open("w", encoding="utf-8") as file,
        tqdm(total=sum(len(task.inputs) for task in tasks), unit="examples", disable=None) as bar,
    ):
        for task in tasks:
            bar.set_description(task.name)
            rows = mine_pairs(task, encoder, negatives=negatives, max_pairs=max_pairs, seed=seed)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            counts[task.name] = (len(task.inputs), len(rows))
            bar.update(len(task.inputs))
    return counts


@dataclass(frozen=True)
class _NamedEncoder:
    """A sentence-transformers model, given by its name."""

    name: str

    def encode(self, sentences: list[str], /) -> Any:
        """Embed texts; returns vectors of shape (n, d)."""
        from inbedder.encoding.reencode import embed_sentences

        return embed_sentences(sentences, self.name)


@app.command()
def main(
    tasks: Annotated[list[Path], typer.Argument(help="Tasks: json files with Definition and Instances, or folders.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .jsonl file.")] = Path("pairs.jsonl"),
    encoder: Annotated[str, typer.Option(help="A sentence-transformers model.")] = BASE_NAME,
    negatives: Annotated[int, typer.Option(min=1, help="Hard negatives per pair.")] = 1,
    max_pairs: Annotated[int | None, typer.Option("--most", min=1, help="Maximum number of pairs per task.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled wordings.")] = 0,
) -> None:
    """Mine pairs with hard negatives for `method: contrastive` recipes."""
    counts = mine_file(tasks, output, _NamedEncoder(encoder), negatives=negatives, max_pairs=max_pairs, seed=seed)
    for name, (examples, pairs) in counts.items():
        typer.echo(f"{name}: {pairs:,} pairs of {examples:,} examples", err=True)


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
