"""Batches of contrastive training: one task per batch, rows that share a text in different batches.

INSTRUCTOR (appendix A) builds each batch from one data set, so that the task does not give a negative away. When two rows of a
task share a text, such as a passage with two questions, it would be a negative of its own positive, so these rows go to different
batches where possible.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch.utils.data import BatchSampler

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pairs import Pair

MAX_TRIED_BATCHES = 50
"""Maximum number of batches that are tried for a row."""


class TaskBatchSampler(BatchSampler):
    """Sampler of batches of one task, with every row once per epoch, in an order that depends on seed and epoch only."""

    def __init__(
        self, pairs: Sequence[Pair], batch_size: int, seed: int = 0, batches: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Set the values that the order depends on.

        Args:
            pairs: The rows.
            batch_size: Maximum number of rows per batch; the rows of a task are spread evenly over as few batches as possible.
            seed: Random seed.
            batches: Row indices of fixed batches, in the order of every epoch; None samples batches.

        Raises:
            RecipeError: When a fixed batch is empty, mixes tasks, repeats a row or has an index out of range.
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
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.batches is not None:
            return len(self.batches)
        return sum(_count_batches(rows, self.batch_size) for rows in self._tasks.values())

    def __iter__(self) -> Iterator[list[int]]:
        if self.batches is not None:
            yield from (list(batch) for batch in self.batches)
            return
        rng = random.Random(f"{self.seed} {self.epoch}")
        batches = []
        for rows in self._tasks.values():
            batches += _split_rows(rng.sample(rows, len(rows)), self.pairs, self.batch_size)
        rng.shuffle(batches)
        yield from batches


def _count_batches(rows: Sequence[int], batch_size: int) -> int:
    return -(-len(rows) // batch_size)


def _split_rows(rows: Sequence[int], pairs: Sequence[Pair], batch_size: int) -> list[list[int]]:
    """Split rows into batches; rows that share a text go to different batches where ``MAX_TRIED_BATCHES`` tries find one."""
    count = _count_batches(rows, batch_size)
    batches: list[list[int]] = [[] for _ in range(count)]
    pair_texts: list[set[str]] = [set() for _ in range(count)]
    all_texts: list[set[str]] = [set() for _ in range(count)]
    for turn, row in enumerate(rows):
        texts = {pairs[row].query.text, pairs[row].positive.text}
        texts_with_negatives = texts | {negative.text for negative in pairs[row].negatives}
        candidates = ((turn + step) % count for step in range(min(count, MAX_TRIED_BATCHES)))
        free_batches = (
            i
            for i in candidates
            if len(batches[i]) < batch_size and not (texts & all_texts[i] or texts_with_negatives & pair_texts[i])
        )
        index = next(free_batches, None)
        if index is None:
            index = min(range(count), key=lambda i: len(batches[i]))
        batches[index].append(row)
        pair_texts[index] |= texts
        all_texts[index] |= texts_with_negatives
    return batches


def check_batches(batches: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> None:
    """Check fixed batches.

    Args:
        batches: Row indices of each batch.
        pairs: The rows.

    Raises:
        RecipeError: When a batch is empty, mixes tasks, repeats a row or has an index out of range.
    """
    for number, batch in enumerate(batches):
        missing_rows = [row for row in batch if not 0 <= row < len(pairs)]
        if not batch:
            raise RecipeError(f"Batch {number} is empty.")
        if missing_rows:
            raise RecipeError(f"Batch {number} names row {missing_rows[0]} of {len(pairs)} rows.")
        if len(set(batch)) < len(batch):
            raise RecipeError(f"Batch {number} holds a row twice, which would be its own negative.")
        mismatch = next((row for row in batch if pairs[row].task != pairs[batch[0]].task), None)
        if mismatch is not None:
            raise RecipeError(
                f"Batch {number} mixes tasks: row {batch[0]} belongs to {pairs[batch[0]].task!r}, row {mismatch} to "
                f"{pairs[mismatch].task!r}. A batch must hold one task."
            )
