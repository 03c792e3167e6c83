"""Row order of training: at random, or rows of similar length in one batch, with hard negatives.

Rows of similar length need little padding; the InBedder authors draw rows at random. On batches where each row has another text,
a model can reach a low loss without reading the question. With ``group`` above 1, rows with the same text (and other questions)
or with the same question (and other texts) are neighbours.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from torch.utils.data import Sampler

MEGABATCH_BATCHES = 50
"""Number of batches whose rows are sorted by length together."""


class GroupedSampler(Sampler[int]):
    """Sampler of every row once per epoch, in an order that depends on seed and epoch only."""

    def __init__(
        self,
        lengths: Sequence[int],
        texts: Sequence[Hashable],
        instructions: Sequence[Hashable],
        batch_size: int,
        group: int = 1,
        seed: int = 0,
        *,
        group_by_length: bool = True,
        by_text: bool = False,
    ) -> None:
        """Set the values that the order depends on.

        Args:
            lengths: Length of each row in tokens.
            texts: Id of each row's text.
            instructions: Id of each row's instruction.
            batch_size: Rows per step over all devices.
            group: Maximum number of neighbouring rows with one text or one question.
            seed: Random seed.
            group_by_length: Whether a batch has rows of similar length.
            by_text: Whether groups share the text only.
        """
        self.lengths, self.keys = lengths, (texts, instructions)
        self.batch_size, self.group, self.seed = batch_size, group, seed
        self.group_by_length, self.by_text = group_by_length, by_text
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self.seed} {self.epoch}")
        groups = self._group_rows(rng)
        rng.shuffle(groups)
        if not self.group_by_length:
            yield from (row for rows in groups for row in rows)
            return
        batches: list[list[int]] = []
        for megabatch in _split_megabatches(groups, MEGABATCH_BATCHES * self.batch_size):
            megabatch.sort(key=lambda rows: max(self.lengths[row] for row in rows), reverse=True)
            order = [row for rows in megabatch for row in rows]
            parts = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
            short = parts.pop() if len(parts[-1]) < self.batch_size else []
            longest, shorter = parts[:1], parts[1:]
            rng.shuffle(shorter)
            batches += [*longest, *shorter, short]
        full_batches = [batch for batch in batches if len(batch) == self.batch_size]
        remaining_rows = [row for batch in batches if len(batch) < self.batch_size for row in batch]
        for batch in full_batches:
            yield from batch
        yield from remaining_rows

    def _group_rows(self, rng: random.Random) -> list[list[int]]:
        """Group rows by text, or by text or question, chosen at random for each row."""
        rows = list(range(len(self.lengths)))
        rng.shuffle(rows)
        if self.group == 1:
            return [[row] for row in rows]
        groups: dict[tuple[int, Hashable], list[int]] = defaultdict(list)
        for row in rows:
            side = 0 if self.by_text else rng.randrange(2)
            groups[side, self.keys[side][row]].append(row)
        return [group[start : start + self.group] for group in groups.values() for start in range(0, len(group), self.group)]


def _split_megabatches(groups: Sequence[list[int]], max_rows: int) -> Iterator[list[list[int]]]:
    """Split groups into megabatches of at most ``max_rows`` rows."""
    megabatch: list[list[int]] = []
    count = 0
    for group in groups:
        if megabatch and count + len(group) > max_rows:
            yield megabatch
            megabatch, count = [], 0
        megabatch.append(group)
        count += len(group)
    if megabatch:
        yield megabatch
