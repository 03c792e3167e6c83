"""Data-CUBE for contrastive training: margins and task vectors of a recipe's pairs, batches, and underfitted rows.

It applies ``row_order`` and ``task_tours`` to the pairs of a recipe (Min et al. 2024, algorithm 1).
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.errors import RecipeError
from inbedder.io.files import atomic_write
from inbedder_finetune.contrastive.contrastive_recipe import Curriculum
from inbedder_finetune.contrastive.pairs import InstructedText, Pair
from inbedder_finetune.curriculum.row_order import (
    arrange,
    compute_margins,
    compute_task_vectors,
    make_loss_mask,
    measure_underfitting,
)
from inbedder_finetune.curriculum.task_tours import ANNEALING_STEPS

if TYPE_CHECKING:
    from inbedder import InBedder

UNDERFITTING_FILE = "underfitting.json"


def measure_margins(pairs: Sequence[Pair], model: InBedder, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Measure how clearly a model separates each row's positive from its nearest negative (phi of the paper's equation 8).

    Args:
        pairs: n rows. A row without hard negatives gets the positive of a random other row of its task, which is its negative in
            the loss, too; without another positive its margin is 0.
        model: An embedding model.
        seed: Seed of the random negatives.

    Returns:
        Margins from -2 to 2, shape (n,).
    """
    rng = random.Random(f"{seed} negatives")
    task_positives: dict[str, list[InstructedText]] = defaultdict(list)
    for row in pairs:
        task_positives[row.task].append(row.positive)

    def choose_negatives(row: Pair) -> tuple[InstructedText, ...]:
        if row.negatives:
            return row.negatives
        candidates = rng.sample(task_positives[row.task], min(5, len(task_positives[row.task])))
        return (next((candidate for candidate in candidates if candidate != row.positive), row.positive),)

    columns = [
        [row.query for row in pairs],
        [row.positive for row in pairs],
        [negative for row in pairs for negative in choose_negatives(row)],
    ]
    queries, positives, negatives = map(InstructedEncoder(model).encode, columns)
    owners = np.repeat(np.arange(len(pairs)), [max(1, len(row.negatives)) for row in pairs])
    margins = np.full(len(pairs), np.inf)
    np.minimum.at(margins, owners, compute_margins(queries[owners], positives[owners], negatives))
    return margins


def make_data_cube_batches(
    pairs: Sequence[Pair], settings: Curriculum, batch_size: int, seed: int
) -> tuple[list[list[int]], list[bool]]:
    """Make the batches of every epoch in Data-CUBE's order, and mark the anchors.

    A row that the threshold masks stays in its batch as a negative. Batches without anchors are dropped, since their loss is 0.
    With rows ordered by margin, masked rows then remain in at most one batch per task.

    Args:
        pairs: The rows, each of one task.
        settings: The recipe's section ``curriculum``.
        batch_size: Rows per batch.
        seed: Random seed.

    Returns:
        Row indices of each batch, and for each row whether it is an anchor.

    Raises:
        ModelError: If the model that measures margins cannot be loaded.
        RecipeError: If the threshold leaves no anchor.
    """
    from inbedder import InBedder

    model = InBedder(settings.model, backbone="instructor")
    tasks = [row.task for row in pairs]
    margins = measure_margins(pairs, model, seed=seed) if settings.instances or settings.threshold is not None else None
    vectors = None
    if settings.tasks:
        queries = [row.query for row in pairs]
        vectors = compute_task_vectors(queries, tasks, InstructedEncoder(model), sample=settings.sample, seed=seed)
    order = margins if settings.instances else None
    steps = ANNEALING_STEPS if settings.steps is None else settings.steps
    batches = arrange(tasks, order, vectors, batch_size, seed=seed, tour=settings.tour, steps=steps)
    if margins is None or settings.threshold is None:
        return batches, [True] * len(pairs)
    anchors = make_loss_mask(margins, settings.threshold, direction=settings.direction or "text").tolist()
    if not any(anchors):
        raise RecipeError(
            f"curriculum.threshold={settings.threshold:g} leaves no row to train on. The margins are from {margins.min():.2f} to "
            f"{margins.max():.2f}: choose a value between them."
        )
    return [batch for batch in batches if any(anchors[row] for row in batch)], anchors


def record_underfitting(pairs: Sequence[Pair], base_model: str, folder: Path, seed: int) -> None:
    """Write the share of underfitted rows (figures 1b and 2) before and after training.

    Args:
        pairs: The training rows.
        base_model: The model before training.
        folder: The trained model; the file is written to it.
        seed: Seed of ``measure_margins``.
    """
    from inbedder import InBedder

    tasks = [row.task for row in pairs]
    shares = {
        name: measure_underfitting(tasks, measure_margins(pairs, InBedder(model, backbone="instructor"), seed=seed))
        for name, model in (("before", base_model), ("after", str(folder)))
    }
    with atomic_write(folder / UNDERFITTING_FILE) as temporary:
        temporary.write_text(json.dumps(shares, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class InstructedEncoder:
    """An encoder of texts with instructions, which the model reads and does not pool."""

    model: InBedder
    """A model with the backbone "instructor"."""

    def encode(self, texts: Sequence[InstructedText], /) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Embed texts under their instructions; returns vectors of shape (n, d)."""
        return self.model.encode([instructed.text for instructed in texts], [instructed.instruction for instructed in texts])
