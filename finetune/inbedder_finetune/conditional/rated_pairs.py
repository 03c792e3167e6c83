"""Which rated rows are learned: files of a recipe, a number of pairs, and an order that keeps the two rows of a pair together."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch.utils.data import Sampler

from inbedder.conditional.rated_rows import Rated, is_ordered, pairs_of
from inbedder.errors import InputError
from inbedder_finetune.synthetic.compose import WRITTEN


def find_file(name: str, folder: Path | str = ".") -> Path:
    """Where a recipe's file lies.

    Args:
        name: The file, relative to the folder or, when it is not there, to the shipped ``finetune/written``.
        folder: ``data.folder``.

    Returns:
        Its path, which need not exist.
    """
    in_folder = Path(folder) / name
    return WRITTEN / name if (WRITTEN / name).is_file() and not in_folder.exists() else in_folder


def draw_pairs(rows: Sequence[Rated], count: int | None, seed: int = 0) -> list[Rated]:
    """Some of the pairs, whole.

    Args:
        rows: The rows.
        count: How many pairs; None for all.
        seed: Seed of the draw; a larger draw of the same seed holds a smaller one.

    Returns:
        The rows of the drawn pairs, in their order.

    Raises:
        InputError: When there are not so many.
    """
    if count is None:
        return list(rows)
    names = list(pairs_of(rows))
    if not 1 <= count <= len(names):
        raise InputError(f"{count} pairs cannot be drawn of {len(names)}.")
    random.Random(seed).shuffle(names)
    chosen = set(names[:count])
    return [row for row in rows if row.pair in chosen]


def carve_development(rows: Sequence[Rated], count: int, seed: int = 0) -> tuple[list[Rated], list[Rated]]:
    """Set pairs of sentences aside: all rows of a pair, in whichever order its sentences stand, go to the same side.

    Args:
        rows: The rows.
        count: How many pairs are set aside.
        seed: Seed of the draw.

    Returns:
        The rows that are left and those set aside, each in their order. A single sentence may stand on both sides.

    Raises:
        InputError: When no pair would be left.
    """
    names = list(dict.fromkeys(sentences_of(row) for row in rows))
    if count >= len(names):
        raise InputError(f"data.development={count} leaves none of {len(names)} pairs to learn. Set fewer aside.")
    aside = set(random.Random(f"{seed} development").sample(names, count))
    return [row for row in rows if sentences_of(row) not in aside], [row for row in rows if sentences_of(row) in aside]


def sentences_of(row: Rated) -> frozenset[str]:
    """The two sentences of a row, whatever their order and whatever the column ``pair`` calls them."""
    return frozenset((row.sentence1, row.sentence2))


def higher_rated(rows: Sequence[Rated]) -> list[bool]:
    """Which rows Quad takes as the higher-rated ones.

    Args:
        rows: n rows.

    Returns:
        n answers: True at the higher-rated row of each pair that has an order.
    """
    pairs = pairs_of(rows).values()
    higher = {places[0] for places in pairs if is_ordered([rows[place] for place in places])}
    return [place in higher for place in range(len(rows))]


class PairSampler(Sampler[int]):
    """Every row once an epoch, both rows of a pair side by side, the higher-rated first; by seed and epoch alone.

    With an even batch size no pair of two rows is split between two batches; of more rows, the first two are not, and so on.
    """

    def __init__(self, rows: Sequence[Rated], seed: int = 0) -> None:
        """Take what the order depends on.

        Args:
            rows: The rows.
            seed: Seed of the order.
        """
        self.groups = [places[i : i + 2] for places in pairs_of(rows).values() for i in range(0, len(places), 2)]
        self.count, self.seed, self.epoch = len(rows), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(f"{self.seed} {self.epoch}")
        alone = [place for group in self.groups if len(group) == 1 for place in group]
        draw.shuffle(alone)
        couples = [alone[i : i + 2] for i in range(0, len(alone), 2)]
        odd = couples.pop() if len(alone) % 2 else []
        groups = [group for group in self.groups if len(group) == 2] + couples
        draw.shuffle(groups)
        for group in [*groups, odd]:
            yield from group
