"""Data-CUBE: in what order an instructed encoder learns its tasks and, within a task, its rows (Min et al. 2024).

1. Tasks (section 4.2): a task's vector is the mean of the vectors of some of its instructed queries (equation 4). ``order_tasks``
   looks for the closed tour of tasks whose neighbours are most alike by cosine (equations 5 and 6; ``tours``).
2. Rows (section 4.3): a row's margin is sim(q, s+) - sim(q, s-) (equation 8). Large is easy. Each task's rows are sorted from
   easy to difficult and cut into batches.
3. Both (algorithm 1): the tour is walked round after round; in each round every task gives its next batch, until all are given.

The model that measures both is one that has learned before: all-MiniLM-L6-v2, or INSTRUCTOR (the paper's). Nothing here trains:
``arrange`` says which rows stand in which batch. The paper's code is not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from inbedder.encoding.reencode import sentence_vectors
from inbedder.errors import InputError
from inbedder.options import BASE_NAME
from inbedder.vectors import unit
from inbedder_finetune.curriculum.task_tours import Floats, order_tasks, tour_similarity

__all__ = [
    "arrange",
    "instance_margins",
    "loss_mask",
    "order_tasks",
    "random_batches",
    "task_similarity",
    "task_vectors",
    "tour_similarity",
    "underfitting",
]

Array = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
UNDERFITTED = 0.05
"""A row of a smaller margin is underfitted (figure 1b)."""


class Encoder(Protocol):
    """What embeds texts: an InBedder, a SentenceTransformer, or anything alike."""

    def encode(self, texts: list[str], /) -> Any:
        """Vectors of n texts, shape (n, d)."""


def task_vectors(
    queries: Sequence[str],
    task_ids: Sequence[Any] | Array,
    model: str | Encoder = BASE_NAME,
    *,
    sample: int = 100,
    seed: int = 0,
) -> Floats:
    """The mean vector of some queries of each task (equation 4).

    Args:
        queries: n instructed queries: the instruction and the query in one text (equation 2).
        task_ids: The task of each query, shape (n,).
        model: A sentence-transformers model by id or folder, such as hkunlp/instructor-large, or what has ``encode``.
        sample: At most so many queries per task (n_t, which the paper does not tell), drawn.
        seed: Seed of the draw.

    Returns:
        Shape (m, d), tasks in the order of ``np.unique(task_ids)``.

    Raises:
        InputError: When there are not as many tasks as queries, or the sample is empty.
        MissingExtraError: When a model is named and sentence-transformers is not installed.
        ModelError: When the named model cannot be loaded.
    """
    if sample < 1:
        raise InputError(f"sample must be 1 or more, not {sample}.")
    draw = np.random.default_rng(seed)
    _, rows_by_task = _tasks(task_ids, len(queries))
    sampled = [rows if len(rows) <= sample else draw.choice(rows, sample, replace=False) for rows in rows_by_task]
    texts = [queries[int(row)] for rows in sampled for row in rows]
    if not texts:
        return np.empty((0, 0))
    vectors = np.asarray(sentence_vectors(texts, model) if isinstance(model, str) else model.encode(texts), dtype=np.float64)
    parts = np.split(vectors, np.cumsum([len(rows) for rows in sampled])[:-1])
    return np.stack([part.mean(axis=0) for part in parts])


def task_similarity(vectors: Array) -> Floats:
    """Cosines between tasks (equation 5); a task whose vector is 0 is like no other.

    Args:
        vectors: Shape (m, d).

    Returns:
        Shape (m, m).
    """
    long = unit(np.asarray(vectors, dtype=np.float64))
    similarity: Floats = long @ long.T
    return similarity


def instance_margins(queries: Array, positives: Array, negatives: Array) -> Floats:
    """How clearly each row's positive is told from its negative (phi of equation 8), by cosine.

    Args:
        queries: Shape (n, d).
        positives: Shape (n, d).
        negatives: Shape (n, d), or (n, h, d) with several negatives per row, of which the nearest counts.

    Returns:
        From -2 to 2, large where the row is easy, shape (n,).

    Raises:
        InputError: When the shapes do not fit.
    """
    query, positive, negative = (unit(np.asarray(query, dtype=np.float64)) for query in (queries, positives, negatives))
    negative = negative[:, None] if negative.ndim == 2 else negative
    if query.ndim != 2 or query.shape != positive.shape or negative.ndim != 3 or negative.shape[::2] != query.shape:
        shapes = ", ".join(str(np.shape(query)) for query in (queries, positives, negatives))
        raise InputError(f"Queries and positives have the shape (n, d), negatives (n, d) or (n, h, d); these have {shapes}.")
    to_negatives = np.einsum("nd,nhd->nh", query, negative)
    margins: Floats = (query * positive).sum(axis=1) - to_negatives.max(axis=1)
    return margins


def loss_mask(margins: Array, threshold: float, *, direction: str = "text") -> Mask:
    """Which rows are learned (alpha of equation 9).

    Equation 9 as printed gives 0 to margins of the threshold or more: it would leave out the easy rows. The text around it
    leaves out "too difficult instances", which "could potentially introduce noise", and a difficult row is one of a small margin
    (section 4.3.1). The text is followed unless the direction says otherwise.

    The paper multiplies the loss of a row by this, so that a row that is not learned still lends its sentences as negatives to
    its batch, and so do recipes (``data_cube``). To leave the rows out altogether, give the mask to ``arrange`` as ``keep``.

    Args:
        margins: Shape (n,).
        threshold: delta.
        direction: "text" learns margins of the threshold or more, "equation" those below it.

    Returns:
        True where a row is learned, shape (n,).

    Raises:
        InputError: When the direction is not known or a margin is not finite.
    """
    if direction not in ("text", "equation"):
        raise InputError(f"direction is {direction!r}; choose one of: text, equation.")
    clear: Mask = _finite(margins, len(margins)) >= threshold
    return clear if direction == "text" else ~clear


def arrange(
    task_ids: Sequence[Any] | Array,
    margins: Sequence[float] | Array | None,
    task_vectors: Array | None,
    batch_size: int,
    *,
    seed: int = 0,
    keep: Sequence[bool] | Array | None = None,
    drop_last: bool = False,
    tour: str = "2-opt",
    steps: int = 2_000_000,
) -> list[list[int]]:
    """The batches of one epoch (algorithm 1, lines 1 to 25, until no task has a batch left).

    Every kept row comes once. The last batch of a task may be short, and holds its most difficult rows. Large tasks have more
    rounds than small ones, so the last rounds pass over the tasks that are done.

    Args:
        task_ids: The task of each row, shape (n,).
        margins: phi of each row, shape (n,); None draws the order of rows ("w/o Inst" of table 3).
        task_vectors: Shape (m, d), tasks in the order of ``np.unique(task_ids)``; None draws the order of tasks ("w/o Task").
        batch_size: Rows per batch.
        seed: Seed of the tour, of rows of equal margin, and of what is drawn.
        keep: Rows that come at all, shape (n,); None is all.
        drop_last: Leave out batches that are short.
        tour: How ``order_tasks`` finds the order of tasks: "2-opt" or "annealing".
        steps: Of the annealing.

    Returns:
        Row numbers, one list per batch; each holds rows of one task.

    Raises:
        InputError: When lengths do not fit, a margin is not finite, or the batch size is below 1.
    """
    names, rows_by_task = _tasks(task_ids, len(task_ids))
    draw = np.random.default_rng(seed)
    shuffled = [draw.permutation(rows) for rows in rows_by_task]
    if margins is not None:
        easy = _finite(margins, len(task_ids))
        shuffled = [rows[np.argsort(-easy[rows], kind="stable")] for rows in shuffled]
    if keep is not None:
        kept = np.asarray(keep, dtype=bool)
        if kept.shape != (len(task_ids),):
            raise InputError(f"keep says yes or no to each of {len(task_ids)} rows; its shape is {kept.shape}.")
        shuffled = [rows[kept[rows]] for rows in shuffled]
    if task_vectors is None:
        order = draw.permutation(len(names)).tolist()
    elif len(task_vectors) != len(names):
        raise InputError(f"There are {len(names)} tasks and {len(task_vectors)} vectors of tasks; give one each.")
    else:
        order = order_tasks(task_similarity(task_vectors), method=tour, steps=steps, seed=seed)
    parts = [_cut(rows, batch_size, drop_last) for rows in shuffled]
    rounds = max((len(part) for part in parts), default=0)
    return [parts[task][turn] for turn in range(rounds) for task in order if turn < len(parts[task])]


def random_batches(
    task_ids: Sequence[Any] | Array, batch_size: int, *, seed: int = 0, drop_last: bool = False
) -> list[list[int]]:
    """The batches that ``arrange`` is compared with ("Vanilla" of table 3): drawn rows of one task each, in a drawn order.

    Args:
        task_ids: The task of each row, shape (n,).
        batch_size: Rows a batch.
        seed: Seed of the draw.
        drop_last: Leave out batches that are short.

    Returns:
        Row numbers, a list per batch, as many batches of each length as ``arrange`` makes.

    Raises:
        InputError: When the batch size is below 1.
    """
    draw = np.random.default_rng(seed)
    _, rows_by_task = _tasks(task_ids, len(task_ids))
    batches = [batch for rows in rows_by_task for batch in _cut(draw.permutation(rows), batch_size, drop_last)]
    return [batches[place] for place in draw.permutation(len(batches))]


def underfitting(
    task_ids: Sequence[Any] | Array, margins: Sequence[float] | Array, *, threshold: float = UNDERFITTED
) -> dict[str, Any]:
    """The share of rows whose positive and negative are not clearly told apart, of each task (figure 2) and of all.

    Called with the margins of a model before training and of one after, it shows what was learned.

    Args:
        task_ids: The task of each row, shape (n,).
        margins: phi of each row, shape (n,).
        threshold: Rows of a smaller margin are underfitted.

    Returns:
        ``overall`` (share of all rows), ``tasks`` (share by name) and ``degrees``: how many tasks are severe (above 0.8),
        moderate (above 0.5) and mild (the rest), as in figure 1b. Ready for json.

    Raises:
        InputError: When lengths do not fit or a margin is not finite.
    """
    names, rows_by_task = _tasks(task_ids, len(task_ids))
    under = _finite(margins, len(task_ids)) < threshold
    shares = {str(name): float(under[rows].mean()) for name, rows in zip(names, rows_by_task, strict=True)}
    severe = sum(share > 0.8 for share in shares.values())
    moderate = sum(0.5 < share <= 0.8 for share in shares.values())
    degrees = {"severe": severe, "moderate": moderate, "mild": len(shares) - severe - moderate}
    return {"overall": float(under.mean()) if len(under) else 0.0, "tasks": shares, "degrees": degrees}


def _tasks(task_ids: Sequence[Any] | Array, rows: int) -> tuple[Array, list[Array]]:
    """The tasks' names in order, and the rows of each."""
    ids = np.asarray(task_ids)
    if ids.shape != (rows,):
        raise InputError(f"Each of {rows} rows needs one task; the tasks' shape is {ids.shape}.")
    names, numbers, counts = np.unique(ids, return_inverse=True, return_counts=True)
    rows_by_task = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1]) if len(names) else []
    return names, rows_by_task


def _cut(rows: Array, batch_size: int, drop_last: bool) -> list[list[int]]:
    if batch_size < 1:
        raise InputError(f"batch_size must be 1 or more, not {batch_size}.")
    batches = [rows[start : start + batch_size].tolist() for start in range(0, len(rows), batch_size)]
    return batches[:-1] if drop_last and len(rows) % batch_size else batches


def _finite(margins: Sequence[float] | Array, rows: int) -> Floats:
    values = np.asarray(margins, dtype=np.float64)
    if values.shape != (rows,) or not np.isfinite(values).all():
        raise InputError(f"Each of {rows} rows needs one finite margin; the margins' shape is {values.shape}.")
    return values
