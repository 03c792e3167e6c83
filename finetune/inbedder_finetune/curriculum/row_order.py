"""Data-CUBE: the order of tasks, and of the rows within a task, for training an encoder with instructions (Min et al. 2024).

1. Tasks (section 4.2): the vector of a task is the mean vector of some of its queries under their instructions (equation 4).
   ``order_tasks`` searches for the closed tour of tasks with the most similar neighbours (equations 5 and 6; ``task_tours``).
2. Rows (section 4.3): the margin of a row is sim(q, s+) - sim(q, s-) (equation 8); a large margin means an easy row. The rows of
   each task are sorted from easy to difficult and split into batches.
3. Both (algorithm 1): the tour is repeated until all batches are used; in each round every task gives its next batch.

A trained model measures vectors and margins: all-MiniLM-L6-v2, or INSTRUCTOR as in the paper. Nothing is trained here;
``arrange`` returns the rows of each batch. The paper published no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from inbedder.encoding.reencode import embed_sentences
from inbedder.errors import InputError
from inbedder.options import BASE_NAME
from inbedder.vectors.vectors import normalize_vectors
from inbedder_finetune.curriculum.task_tours import ANNEALING_STEPS, Floats, Tour, order_tasks

Array = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
UNDERFITTING_MARGIN = 0.05
"""Rows with a smaller margin are underfitted (figure 1b)."""


class Encoder(Protocol):
    """Interface of an embedding model, such as InBedder or SentenceTransformer."""

    def encode(self, queries: list[Any], /) -> Any:
        """Embed queries, which are texts or whatever the model reads; returns vectors of shape (n, d)."""


def compute_task_vectors(
    queries: Sequence[Any],
    task_ids: Sequence[Any] | Array,
    model: str | Encoder = BASE_NAME,
    *,
    sample: int = 100,
    seed: int = 0,
) -> Floats:
    """Compute the mean vector of some queries of each task (equation 4).

    Args:
        queries: n queries, as the model encodes them. A model by name, or one of plain texts, takes instruction and query in one
            text (equation 2); INSTRUCTOR, which does not pool the instruction, needs both (``data_cube``).
        task_ids: Task of each query, shape (n,).
        model: An embedding model, or the id or folder of a sentence-transformers model, such as hkunlp/instructor-large.
        sample: Maximum number of queries per task, sampled at random (n_t, which the paper does not give).
        seed: Random seed.

    Returns:
        Vectors of shape (m, d), with tasks in the order of ``np.unique(task_ids)``.

    Raises:
        InputError: If queries and task ids differ in number, or the sample is empty.
        ModelError: If the named model cannot be loaded.
    """
    if sample < 1:
        raise InputError(f"sample must be 1 or more, not {sample}.")
    rng = np.random.default_rng(seed)
    _, rows_by_task = _group_rows(task_ids, len(queries))
    sampled = [rows if len(rows) <= sample else rng.choice(rows, sample, replace=False) for rows in rows_by_task]
    sampled_queries = [queries[int(row)] for rows in sampled for row in rows]
    if not sampled_queries:
        return np.empty((0, 0))
    encoded = embed_sentences(sampled_queries, model) if isinstance(model, str) else model.encode(sampled_queries)
    vectors = np.asarray(encoded, dtype=np.float64)
    parts = np.split(vectors, np.cumsum([len(rows) for rows in sampled])[:-1])
    return np.stack([part.mean(axis=0) for part in parts])


def compute_task_similarity(vectors: Array) -> Floats:
    """Compute the cosines between tasks (equation 5); a task with a zero vector has cosines of 0.

    Args:
        vectors: Task vectors, shape (m, d).

    Returns:
        Cosines, shape (m, m).
    """
    unit_vectors = normalize_vectors(np.asarray(vectors, dtype=np.float64))
    similarity: Floats = unit_vectors @ unit_vectors.T
    return similarity


def compute_margins(queries: Array, positives: Array, negatives: Array) -> Floats:
    """Compute the margin of each row, the cosine to its positive less the cosine to its nearest negative (phi of equation 8).

    Args:
        queries: Shape (n, d).
        positives: Shape (n, d).
        negatives: Shape (n, d), or (n, h, d) with several negatives per row.

    Returns:
        Margins from -2 (difficult) to 2 (easy), shape (n,).

    Raises:
        InputError: If the shapes do not match.
    """
    query, positive, negative = (
        normalize_vectors(np.asarray(query, dtype=np.float64)) for query in (queries, positives, negatives)
    )
    negative = negative[:, None] if negative.ndim == 2 else negative
    if query.ndim != 2 or query.shape != positive.shape or negative.ndim != 3 or negative.shape[::2] != query.shape:
        shapes = ", ".join(str(np.shape(query)) for query in (queries, positives, negatives))
        raise InputError(f"Queries and positives need the shape (n, d), negatives (n, d) or (n, h, d), not {shapes}.")
    to_negatives = np.einsum("nd,nhd->nh", query, negative)
    margins: Floats = (query * positive).sum(axis=1) - to_negatives.max(axis=1)
    return margins


def make_loss_mask(margins: Array, threshold: float, *, direction: str = "text") -> Mask:
    """Mark the rows that have a loss (alpha of equation 9).

    Equation 9 as printed masks margins from the threshold on, that is the easy rows. The text around it masks "too difficult
    instances", which "could potentially introduce noise", and a difficult row has a small margin (section 4.3.1). The default
    follows the text.

    The paper and the recipes (``data_cube``) multiply the loss of a row by alpha, so a masked row remains a negative in its
    batch. To drop masked rows entirely, pass the mask to ``arrange`` as ``keep``.

    Args:
        margins: Shape (n,).
        threshold: delta.
        direction: "text" marks margins from the threshold on, "equation" margins below it.

    Returns:
        True where a row has a loss, shape (n,).

    Raises:
        InputError: If the direction is unknown or a margin is not finite.
    """
    if direction not in ("text", "equation"):
        raise InputError(f"direction is {direction!r}; choose one of: text, equation.")
    is_easy: Mask = _check_margins(margins, len(margins)) >= threshold
    return is_easy if direction == "text" else ~is_easy


def arrange(
    task_ids: Sequence[Any] | Array,
    margins: Sequence[float] | Array | None,
    task_vectors: Array | None,
    batch_size: int,
    *,
    seed: int = 0,
    keep: Sequence[bool] | Array | None = None,
    tour: Tour = "2-opt",
    steps: int = ANNEALING_STEPS,
) -> list[list[int]]:
    """Arrange the rows of one epoch in batches (algorithm 1, lines 1 to 25, until all tasks are used up).

    Every kept row occurs once. The rows of a task are spread evenly over as few batches as possible, of which the last holds the
    most difficult ones. Later rounds skip tasks without batches left.

    Args:
        task_ids: Task of each row, shape (n,).
        margins: phi of each row, shape (n,); None orders rows at random ("w/o Inst" of table 3).
        task_vectors: Shape (m, d), with tasks in the order of ``np.unique(task_ids)``; None orders tasks at random ("w/o Task").
        batch_size: Maximum number of rows per batch.
        seed: Seed of the tour, of rows with equal margins, and of random orders.
        keep: Rows to keep, shape (n,); None keeps all.
        tour: Search for the order of tasks: "2-opt", or "annealing" as in the paper.
        steps: Number of swaps that annealing proposes.

    Returns:
        Row indices of each batch; a batch holds rows of one task.

    Raises:
        InputError: If lengths do not match, a margin is not finite, or the batch size is below 1.

    Example:
        >>> arrange(["a", "a", "a", "b"], [0.1, 0.5, 0.3, 0.2], np.eye(2), batch_size=2)
        [[1, 2], [3], [0]]
    """
    names, rows_by_task = _group_rows(task_ids, len(task_ids))
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(rows) for rows in rows_by_task]
    if margins is not None:
        phi = _check_margins(margins, len(task_ids))
        shuffled = [rows[np.argsort(-phi[rows], kind="stable")] for rows in shuffled]
    if keep is not None:
        is_kept = np.asarray(keep, dtype=bool)
        if is_kept.shape != (len(task_ids),):
            raise InputError(f"keep needs one value for each of {len(task_ids)} rows; its shape is {is_kept.shape}.")
        shuffled = [rows[is_kept[rows]] for rows in shuffled]
    if task_vectors is None:
        order = rng.permutation(len(names)).tolist()
    elif len(task_vectors) != len(names):
        raise InputError(f"{len(names)} tasks need {len(names)} task vectors, not {len(task_vectors)}.")
    else:
        order = order_tasks(compute_task_similarity(task_vectors), method=tour, steps=steps, seed=seed)
    parts = [_split_batches(rows, batch_size) for rows in shuffled]
    rounds = max((len(part) for part in parts), default=0)
    return [parts[task][turn] for turn in range(rounds) for task in order if turn < len(parts[task])]


def sample_batches(task_ids: Sequence[Any] | Array, batch_size: int, *, seed: int | Sequence[int] = 0) -> list[list[int]]:
    """Sample batches of one task in a random order, the baseline of ``arrange`` ("Vanilla" of table 3).

    Args:
        task_ids: Task of each row, shape (n,); equal ids for all rows mix the tasks.
        batch_size: Maximum number of rows per batch.
        seed: Random seed.

    Returns:
        Row indices of each batch, with as many batches of each length as ``arrange`` returns.

    Raises:
        InputError: If the batch size is below 1.
    """
    rng = np.random.default_rng(seed)
    _, rows_by_task = _group_rows(task_ids, len(task_ids))
    batches = [batch for rows in rows_by_task for batch in _split_batches(rng.permutation(rows), batch_size)]
    return [batches[index] for index in rng.permutation(len(batches))]


def measure_underfitting(
    task_ids: Sequence[Any] | Array, margins: Sequence[float] | Array, *, threshold: float = UNDERFITTING_MARGIN
) -> dict[str, Any]:
    """Measure the share of underfitted rows, per task (figure 2) and overall.

    Args:
        task_ids: Task of each row, shape (n,).
        margins: phi of each row, shape (n,), before or after training.
        threshold: Rows with a smaller margin are underfitted.

    Returns:
        ``overall`` (share of all rows), ``tasks`` (share by task name) and ``degrees``: the numbers of tasks that are severe
        (share above 0.8), moderate (above 0.5) and mild (others), as in figure 1b. All values are JSON types.

    Raises:
        InputError: If lengths do not match or a margin is not finite.
    """
    names, rows_by_task = _group_rows(task_ids, len(task_ids))
    is_underfitted = _check_margins(margins, len(task_ids)) < threshold
    shares = {str(name): float(is_underfitted[rows].mean()) for name, rows in zip(names, rows_by_task, strict=True)}
    severe = sum(share > 0.8 for share in shares.values())
    moderate = sum(0.5 < share <= 0.8 for share in shares.values())
    degrees = {"severe": severe, "moderate": moderate, "mild": len(shares) - severe - moderate}
    return {"overall": float(is_underfitted.mean()) if len(is_underfitted) else 0.0, "tasks": shares, "degrees": degrees}


def _group_rows(task_ids: Sequence[Any] | Array, rows: int) -> tuple[Array, list[Array]]:
    """Group rows by task; returns the sorted task names, and the rows of each task."""
    ids = np.asarray(task_ids)
    if ids.shape != (rows,):
        raise InputError(f"Each of {rows} rows needs one task; the shape of task_ids is {ids.shape}.")
    names, numbers, counts = np.unique(ids, return_inverse=True, return_counts=True)
    rows_by_task = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1]) if len(names) else []
    return names, rows_by_task


def count_batches(rows: int, batch_size: int) -> int:
    """Count the batches that hold the rows of a task."""
    if batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, not {batch_size}.")
    return -(-rows // batch_size)


def _split_batches(rows: Array, batch_size: int) -> list[list[int]]:
    count = count_batches(len(rows), batch_size)
    return [batch.tolist() for batch in np.array_split(rows, count)] if count else []


def _check_margins(margins: Sequence[float] | Array, rows: int) -> Floats:
    values = np.asarray(margins, dtype=np.float64)
    if values.shape != (rows,) or not np.isfinite(values).all():
        raise InputError(f"Each of {rows} rows needs one finite margin; the shape of margins is {values.shape}.")
    return values
