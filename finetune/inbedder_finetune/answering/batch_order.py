"""The order of training: rows of similar length together, and hard negatives in one batch.

An embedder that reads the text and not the question does well on random batches, where every other row has another text.
With ``group`` above 1, rows about the same text (other questions) or under the same question (other texts) stand side by side.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from torch.utils.data import Sampler

MEGABATCH = 50


class GroupedSampler(Sampler[int]):
    """Every row once an epoch, in an order that depends on seed and epoch alone."""

    def __init__(
        self,
        lengths: Sequence[int],
        texts: Sequence[Hashable],
        questions: Sequence[Hashable],
        batch_size: int,
        group: int = 1,
        seed: int = 0,
        *,
        share_texts: bool = False,
    ) -> None:
        """Take what the order depends on.

        Args:
            lengths: Tokens of each row.
            texts: What stands for each row's text.
            questions: What stands for each row's question.
            batch_size: Rows per step, over all devices.
            group: Up to so many rows of one text, or of one question, side by side.
            seed: Seed of the order.
            share_texts: Group by text alone, as ``packing`` likes it.
        """
        self.lengths, self.keys = lengths, (texts, questions)
        self.batch_size, self.group, self.seed = batch_size, group, seed
        self.share_texts = share_texts
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(f"{self.seed} {self.epoch}")
        groups = self._groups(draw)
        draw.shuffle(groups)
        batches: list[list[int]] = []
        for megabatch in _runs(groups, MEGABATCH * self.batch_size):
            megabatch.sort(key=lambda rows: max(self.lengths[row] for row in rows), reverse=True)
            order = [row for rows in megabatch for row in rows]
            cut = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
            short = cut.pop() if len(cut[-1]) < self.batch_size else []
            longest, rest = cut[:1], cut[1:]
            draw.shuffle(rest)
            batches += [*longest, *rest, short]
        whole = [batch for batch in batches if len(batch) == self.batch_size]
        left = [row for batch in batches if len(batch) < self.batch_size for row in batch]
        for batch in whole:
            yield from batch
        yield from left

    def _groups(self, draw: random.Random) -> list[list[int]]:
        """Rows in groups: by text or by question, drawn for each row."""
        rows = list(range(len(self.lengths)))
        draw.shuffle(rows)
        if self.group == 1:
            return [[row] for row in rows]
        found: dict[tuple[int, Hashable], list[int]] = defaultdict(list)
        for row in rows:
            side = 0 if self.share_texts else draw.randrange(2)
            found[side, self.keys[side][row]].append(row)
        return [members[start : start + self.group] for members in found.values() for start in range(0, len(members), self.group)]


def _runs(groups: Sequence[list[int]], most: int) -> Iterator[list[list[int]]]:
    run: list[list[int]] = []
    count = 0
    for group in groups:
        if run and count + len(group) > most:
            yield run
            run, count = [], 0
        run.append(group)
        count += len(group)
    if run:
        yield run
