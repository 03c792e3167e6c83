"""Data-CUBE on the pairs of a recipe: measure margins and task vectors, arrange batches, and say what stays underfitted.

``curriculum`` holds the method; this is where it meets the rows of contrastive training (Min et al. 2024, algorithm 1).
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.io.files import atomic_write
from inbedder_finetune.contrastive.contrastive_recipe import Curriculum
from inbedder_finetune.contrastive.pairs import Instructed, Pair
from inbedder_finetune.curriculum.row_order import arrange, instance_margins, loss_mask, task_vectors, underfitting

if TYPE_CHECKING:
    from inbedder import InBedder

UNDERFITTING_FILE = "underfitting.json"


def read_margins(pairs: Sequence[Pair], model: InBedder, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How clearly a model tells each row's positive from its nearest negative (phi of the paper's equation 8).

    Args:
        pairs: n rows. One without a hard negative is given the positive of a drawn other row of its task, which is what the loss
            sets against it; a task of one such row has its own positive, a margin of 0.
        model: An embedding model.
        seed: Seed of those draws.

    Returns:
        Shape (n,), from -2 to 2.
    """
    draw = random.Random(f"{seed} negatives")
    others: dict[str, list[Instructed]] = defaultdict(list)
    for row in pairs:
        others[row.task].append(row.positive)

    def negatives(row: Pair) -> tuple[Instructed, ...]:
        return row.negatives or (
            next(
                (other for other in draw.sample(others[row.task], min(5, len(others[row.task]))) if other != row.positive),
                row.positive,
            ),
        )

    sides = [
        [row.query for row in pairs],
        [row.positive for row in pairs],
        [negative for row in pairs for negative in negatives(row)],
    ]
    queries, positives, against = (_embed(side, model) for side in sides)
    owners = np.repeat(np.arange(len(pairs)), [max(1, len(row.negatives)) for row in pairs])
    margins = np.full(len(pairs), np.inf)
    np.minimum.at(margins, owners, instance_margins(queries[owners], positives[owners], against))
    return margins


def data_cube_batches(
    pairs: Sequence[Pair], settings: Curriculum, batch_size: int, seed: int
) -> tuple[list[list[int]], list[bool]]:
    """The batches of every epoch in Data-CUBE's order, and which rows are learned in them.

    A row that the threshold masks stays in its batch as a source of negatives. Batches that hold no other rows are left out:
    their loss is 0. With rows ordered by margin, that leaves masked rows in one batch of a task at most.

    Args:
        pairs: The rows, each of one task.
        settings: Which halves of the curriculum are used, and what measures.
        batch_size: Rows a batch.
        seed: Seed of all draws.

    Returns:
        Row numbers, a list per batch; and for each row whether its own loss counts.

    Raises:
        ModelError: When the measuring model cannot be loaded.
    """
    from inbedder import InBedder

    model = InBedder(settings.model, backbone="instructor")
    tasks = [row.task for row in pairs]
    margins = read_margins(pairs, model, seed=seed) if settings.instances or settings.threshold is not None else None
    vectors = None
    if settings.tasks:
        vectors = task_vectors(
            [row.query.instruction + row.query.text for row in pairs], tasks, model, sample=settings.sample, seed=seed
        )
    order = margins if settings.instances else None
    batches = arrange(tasks, order, vectors, batch_size, seed=seed, tour=settings.tour, steps=settings.steps)
    if margins is None or settings.threshold is None:
        return batches, [True] * len(pairs)
    anchors = loss_mask(margins, settings.threshold, direction=settings.direction).tolist()
    return [batch for batch in batches if any(anchors[row] for row in batch)], anchors


def note_underfitting(pairs: Sequence[Pair], before: str, folder: Path, seed: int) -> None:
    """Write the share of rows that are not clearly told apart (figures 1b and 2), before training and after.

    Args:
        pairs: The learned rows.
        before: The model that training began with.
        folder: Its result, where the file is written too.
        seed: Seed of the draws of ``read_margins``.
    """
    from inbedder import InBedder

    tasks = [row.task for row in pairs]
    shares = {
        when: underfitting(tasks, read_margins(pairs, InBedder(model, backbone="instructor"), seed=seed))
        for when, model in (("before", before), ("after", str(folder)))
    }
    with atomic_write(folder / UNDERFITTING_FILE) as temporary:
        temporary.write_text(json.dumps(shares, indent=1), encoding="utf-8")


def _embed(side: Sequence[Instructed], model: InBedder) -> np.ndarray[Any, np.dtype[np.float32]]:
    return model.encode([instructed.text for instructed in side], [instructed.instruction for instructed in side])
