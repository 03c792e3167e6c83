"""Selection and order of rated rows: finding files, sampling and splitting pairs, and keeping both rows of a pair together."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch.utils.data import Sampler

from inbedder.conditional.rated_rows import RatedPair, group_by_pair, is_ordered
from inbedder.errors import InputError
from inbedder.runtime.user_paths import expand_path
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER


def find_file(name: str, folder: Path | str = ".") -> Path:
    """Find a file of a recipe.

    Args:
        name: Name of the file in the folder; a file missing there is looked up in the shipped ``finetune/written``.
        folder: The recipe's ``data.folder``.

    Returns:
        Path of the file, which may not exist.

    Example:
        >>> find_file("csts-captions.csv").name
        'csts-captions.csv'
    """
    in_folder = expand_path(folder) / expand_path(name)
    return WRITTEN_FOLDER / name if (WRITTEN_FOLDER / name).is_file() and not in_folder.exists() else in_folder


def sample_pairs(rows: Sequence[RatedPair], count: int | None, seed: int = 0) -> list[RatedPair]:
    """Sample pairs with all of their rows.

    Args:
        rows: All rows.
        count: Number of pairs; None keeps all.
        seed: Random seed; a larger sample with the same seed contains a smaller one.

    Returns:
        The rows of the sampled pairs, in their order.

    Raises:
        InputError: If there are fewer pairs.
    """
    if count is None:
        return list(rows)
    names = list(group_by_pair(rows))
    if not 1 <= count <= len(names):
        raise InputError(f"Cannot sample {count} pairs from {len(names)}.")
    random.Random(seed).shuffle(names)
    sample = set(names[:count])
    return [row for row in rows if row.pair in sample]


def split_development(rows: Sequence[RatedPair], count: int, seed: int = 0) -> tuple[list[RatedPair], list[RatedPair]]:
    """Split off development pairs: all rows of two sentences, in either order, go to the same split.

    Args:
        rows: All rows.
        count: Number of development pairs.
        seed: Random seed.

    Returns:
        The training rows and the development rows, each in their order. A single sentence may occur in both.

    Raises:
        InputError: If no training pair is left.
    """
    names = list(dict.fromkeys(get_sentences(row) for row in rows))
    if count >= len(names):
        raise InputError(f"data.development_pairs={count} leaves none of {len(names)} pairs for training. Reduce it.")
    sample = set(random.Random(f"{seed} development").sample(names, count))
    return [row for row in rows if get_sentences(row) not in sample], [row for row in rows if get_sentences(row) in sample]


def get_sentences(row: RatedPair) -> frozenset[str]:
    """Get the two sentences of a row, regardless of their order and the column ``pair``."""
    return frozenset((row.sentence1, row.sentence2))


def mark_higher_rated(rows: Sequence[RatedPair]) -> list[bool]:
    """Mark the higher-rated row of each ordered pair, for Quad.

    Args:
        rows: n rows.

    Returns:
        n values, True at the higher-rated row of each ordered pair.
    """
    pairs = group_by_pair(rows).values()
    higher = {indices[0] for indices in pairs if is_ordered([rows[index] for index in indices])}
    return [index in higher for index in range(len(rows))]


class PairSampler(Sampler[int]):
    """Sampler of every row once per epoch: with the rows of a pair as neighbours, the higher-rated first, or at random.

    The order depends on seed and epoch only. With an even batch size, no two neighbours are split between two batches; a pair of
    more than two rows is treated as several pairs of two.
    """

    def __init__(self, rows: Sequence[RatedPair], seed: int = 0, *, keep_pairs: bool = True) -> None:
        """Set the values that the order depends on.

        Args:
            rows: The rows.
            seed: Random seed.
            keep_pairs: Whether the rows of a pair are neighbours, as Quad needs them.
        """
        pairs, size = group_by_pair(rows).values(), 2 if keep_pairs else 1
        self.groups = [indices[i : i + size] for indices in pairs for i in range(0, len(indices), size)]
        self.count, self.seed, self.epoch = len(rows), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self.seed} {self.epoch}")
        singles = [index for group in self.groups if len(group) == 1 for index in group]
        rng.shuffle(singles)
        couples = [singles[i : i + 2] for i in range(0, len(singles), 2)]
        odd = couples.pop() if len(singles) % 2 else []
        groups = [group for group in self.groups if len(group) == 2] + couples
        rng.shuffle(groups)
        for group in [*groups, odd]:
            yield from group
