"""Batches of contrastive training.

INSTRUCTOR (appendix A) builds each batch from one data set, so that the task does not give a negative away; this is also the
"Vanilla" row of Data-CUBE's table 3. ``batches: random`` mixes the tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torch.utils.data import BatchSampler

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.pairs import Pair
from inbedder_finetune.curriculum.row_order import count_batches, sample_batches


class PairBatchSampler(BatchSampler):
    """Sampler of batches with every row once per epoch, in an order that depends on seed and epoch only."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        batch_size: int,
        seed: int = 0,
        *,
        mixes_tasks: bool = False,
        batches: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Set the values that the order depends on.

        Args:
            pairs: The rows.
            batch_size: Maximum number of rows per batch.
            seed: Random seed.
            mixes_tasks: Whether a batch may hold rows of several tasks.
            batches: Row indices of fixed batches, in the order of every epoch; None samples batches.

        Raises:
            RecipeError: If a fixed batch is empty, mixes tasks, repeats a row or has an index out of range.
        """
        if batches is not None:
            check_batches(batches, pairs)
        self.pairs, self.batch_size, self.seed, self.batches = pairs, batch_size, seed, batches
        self.drop_last = False
        self.epoch = 0
        numbers = {task: number for number, task in enumerate(dict.fromkeys(pair.task for pair in pairs))}
        self._tasks = [0 if mixes_tasks else numbers[pair.task] for pair in pairs]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.batches is not None:
            return len(self.batches)
        return sum(count_batches(rows, self.batch_size) for rows in Counter(self._tasks).values())

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.batches
        if batches is None:
            batches = sample_batches(self._tasks, self.batch_size, seed=(self.seed, self.epoch))
        yield from (list(batch) for batch in batches)


def check_batches(batches: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> None:
    """Check fixed batches.

    Args:
        batches: Row indices of each batch.
        pairs: The rows.

    Raises:
        RecipeError: If a batch is empty, mixes tasks, repeats a row or has an index out of range.
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
