"""Groups that vectors set apart and answers do not, and questions that are answered as another one is.

A reader can only tell two groups apart by what the model answered in them. How alike two groups are is the overlap of their
answers: the share of the smaller counts, sum over answers of min(p, q), 1 where both hold the same answers equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult

ALIKE = 0.8
"""Two groups from this overlap on do not differ in their answers."""
FEWEST_ANSWERS = 5
"""Groups with fewer answers are not compared."""
SAME_ANSWERS = 0.6
"""Two questions whose answers agree by this much beyond chance (Cohen's kappa) are told of."""

Counts = Counter[str]


def overlap(left: Counts, right: Counts) -> float:
    """Overlap of the answers of two groups.

    Args:
        left: How often each answer was given in one group, at least one.
        right: The same of the other.

    Returns:
        0 to 1.
    """
    return sum(min(count / left.total(), right[answer] / right.total()) for answer, count in left.items())


def alike_groups(answers: Sequence[str], labels: NDArray[np.int64]) -> list[list[int]]:
    """Sets of groups whose answers do not differ: the two most alike are put together, until none are alike enough.

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Groups of each set, in rising order, one set after the other; groups that differ from all others are in none.
    """
    counts: dict[int, Counts] = {}
    for answer, label in zip(answers, labels.tolist(), strict=True):
        if answer and label >= 0:
            counts.setdefault(label, Counter())[_plain(answer)] += 1
    sets = [([label], count) for label, count in sorted(counts.items()) if count.total() >= FEWEST_ANSWERS]
    while len(sets) > 1:
        pairs = [(overlap(sets[i][1], sets[j][1]), i, j) for i, j in combinations(range(len(sets)), 2)]
        most, i, j = max(pairs)
        if most < ALIKE:
            break
        sets[i] = (sorted(sets[i][0] + sets[j][0]), sets[i][1] + sets[j][1])
        del sets[j]
    return sorted(groups for groups, _ in sets if len(groups) > 1)


def tell_apart(answers: Sequence[str], labels: NDArray[np.int64], *, merge: bool) -> tuple[NDArray[np.int64], list[str]]:
    """Merge groups whose answers do not differ, or say which these are.

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for one in no group.
        merge: Put them together; else the labels stay, and what is alike is said.

    Returns:
        The labels, numbered by falling size anew where groups were merged, and what the reader should know, in sentences.
    """
    sets = alike_groups(answers, labels)
    if not sets:
        return labels, []
    if not merge:
        notes = []
        for groups in sets:
            count = Counter(_plain(answer) for answer, label in zip(answers, labels.tolist(), strict=True) if label in groups)
            numbers = ", ".join(str(group + 1) for group in groups[:-1]) + f" and {groups[-1] + 1}"
            notes.append(
                f"Groups {numbers} do not differ in their answers (mostly {count.most_common(1)[0][0]!r}): "
                "ask for fewer groups, or take -k auto, which merges them."
            )
        return labels, notes
    merged = labels.copy()
    for first, *others in sets:
        merged[np.isin(labels, others)] = first
    kept, sizes = np.unique(merged[merged >= 0], return_counts=True)
    rank = np.full(int(labels.max()) + 2, -1, dtype=np.int64)  # the last one stands for -1
    rank[kept[np.argsort(-sizes, kind="stable")]] = np.arange(len(kept))
    before = len(np.unique(labels[labels >= 0]))
    return rank[merged], [f"{before} groups became {len(kept)}: those whose answers do not differ were merged."]


def same_answers(results: Sequence[ClusterResult]) -> list[str]:
    """Questions that the model answers with the answers to another one.

    Args:
        results: Groupings of the same texts.

    Returns:
        A sentence for each pair of different questions whose answers agree in most texts and far beyond chance.
    """
    notes = []
    for left, right in combinations(results, 2):
        pairs = [(_plain(a), _plain(b)) for a, b in zip(left.answers, right.answers, strict=True) if a and b]
        share = sum(a == b for a, b in pairs) / max(1, len(pairs))
        firsts, seconds = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
        chance = sum(count * seconds[answer] for answer, count in firsts.items()) / max(1, len(pairs)) ** 2
        if left.instruction != right.instruction and share - chance >= SAME_ANSWERS * (1 - chance) > 0:
            notes.append(
                f"{share:.0%} of the answers to {right.instruction!r} are those to {left.instruction!r}: if the questions do not "
                "mean the same, the model does not understand one of them. Ask it in plainer words, or take a larger model."
            )
    return notes


def _plain(answer: str) -> str:
    return " ".join(answer.casefold().split())
