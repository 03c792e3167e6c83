"""The order of contrastive training: batches of one task, equal texts apart.

INSTRUCTOR (appendix A) builds each batch from one dataset, so that a negative cannot be told by its task. Within a task a text
that two rows share (a passage under two questions) would be a negative of its own positive, so such rows go to different
batches where there are enough of them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch.utils.data import BatchSampler

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pairs import Pair

TRIES = 50


class TaskBatchSampler(BatchSampler):
    """Every row once an epoch in batches of one task, in an order that depends on seed and epoch alone; or given batches."""

    def __init__(
        self, pairs: Sequence[Pair], batch_size: int, seed: int = 0, batches: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Take what the order depends on.

        Args:
            pairs: The rows.
            batch_size: Most rows per batch; a task's rows are dealt out to as few as hold them.
            seed: Seed of the order.
            batches: Row numbers of each batch, in the order of every epoch; None makes them.

        Raises:
            RecipeError: When a given batch is empty, mixes tasks, repeats a row or names one that does not exist.
        """
        if batches is not None:
            check_batches(batches, pairs)
        self.pairs, self.batch_size, self.seed, self.batches = pairs, batch_size, seed, batches
        self.drop_last = False
        self.epoch = 0
        self._tasks: dict[str, list[int]] = defaultdict(list)
        for row, pair in enumerate(pairs):
            self._tasks[pair.task].append(row)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.batches is not None:
            return len(self.batches)
        return sum(_count(rows, self.batch_size) for rows in self._tasks.values())

    def __iter__(self) -> Iterator[list[int]]:
        if self.batches is not None:
            yield from (list(batch) for batch in self.batches)
            return
        draw = random.Random(f"{self.seed} {self.epoch}")
        made = []
        for rows in self._tasks.values():
            made += _apart(draw.sample(rows, len(rows)), self.pairs, self.batch_size)
        draw.shuffle(made)
        yield from made


def _count(rows: Sequence[int], batch_size: int) -> int:
    return -(-len(rows) // batch_size)


def _apart(rows: Sequence[int], pairs: Sequence[Pair], most: int) -> list[list[int]]:
    """Deal rows out to batches; rows that share a text go apart where a look at ``TRIES`` batches finds room."""
    count = _count(rows, most)
    batches: list[list[int]] = [[] for _ in range(count)]
    learned: list[set[str]] = [set() for _ in range(count)]
    everything: list[set[str]] = [set() for _ in range(count)]
    for turn, row in enumerate(rows):
        texts = {pairs[row].query.text, pairs[row].positive.text}
        whole = texts | {negative.text for negative in pairs[row].negatives}
        near = ((turn + step) % count for step in range(min(count, TRIES)))
        free = (i for i in near if len(batches[i]) < most and not (texts & everything[i] or whole & learned[i]))
        place = next(free, None)
        if place is None:
            place = min(range(count), key=lambda i: len(batches[i]))
        batches[place].append(row)
        learned[place] |= texts
        everything[place] |= whole
    return batches


def check_batches(batches: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> None:
    """Refuse batches that cannot be trained on.

    Args:
        batches: Row numbers of each batch.
        pairs: The rows.

    Raises:
        RecipeError: Naming the first bad batch and its rows.
    """
    for number, batch in enumerate(batches):
        beyond = [row for row in batch if not 0 <= row < len(pairs)]
        if not batch or beyond:
            raise RecipeError(
                f"Batch {number} {f'names row {beyond[0]} of {len(pairs)}' if beyond else 'is empty'}. Give row numbers."
            )
        if len(set(batch)) < len(batch):
            raise RecipeError(f"Batch {number} holds a row twice: it would be its own negative.")
        other = next((row for row in batch if pairs[row].task != pairs[batch[0]].task), None)
        if other is not None:
            raise RecipeError(
                f"Batch {number} mixes task ids: row {batch[0]} is of {pairs[batch[0]].task!r}, row {other} of "
                f"{pairs[other].task!r}. Give batches of one task, so that negatives are told by their texts."
            )
