"""Groups that vectors set apart and answers do not, and questions that are answered as another one is.

A reader can only tell two groups apart by what the model answered in them. The answers of a group are counted word by word, in
each answer the first word double the second and so on, without stopwords. How alike two groups are is the overlap of their words:
the sum over words of the smaller share, 1 where both have the same words equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inbedder.words import stopwords

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

ALIKE = 0.8
"""Two groups from this overlap on do not differ in their answers."""
SAME_ANSWERS = 0.6
"""Two questions whose answers agree by this much beyond chance (Cohen's kappa) are told of."""

Weights = Counter[str]


def overlap(left: Weights, right: Weights) -> float:
    """Overlap of the words of two groups.

    Args:
        left: Weight of each word in one group.
        right: The same of the other.

    Returns:
        0 to 1.
    """
    mine, others = left.total(), right.total()
    return float(sum(min(weight / mine, right[word] / others) for word, weight in left.items()))


def alike_groups(answers: Sequence[str], labels: NDArray[np.int64]) -> list[list[int]]:
    """Sets of groups whose answers do not differ: in each set every two groups are alike (complete linkage).

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Groups of each set, in rising order, one set after the other; groups that differ from all others are in none.
    """
    words = {group: _words_of(answers, labels == group) for group in range(int(labels.max(initial=-1)) + 1)}
    groups = [group for group in words if words[group]]
    if len(groups) < 2:
        return []
    from sklearn.cluster import AgglomerativeClustering

    apart = np.array([[1 - overlap(words[left], words[right]) for right in groups] for left in groups])
    linkage = AgglomerativeClustering(None, metric="precomputed", linkage="complete", distance_threshold=1 - ALIKE + 1e-9)
    sets: dict[int, list[int]] = {}
    for group, number in zip(groups, linkage.fit_predict(apart).tolist(), strict=True):
        sets.setdefault(number, []).append(group)
    return sorted(each for each in sets.values() if len(each) > 1)


def tell_apart(
    answers: Sequence[str], labels: NDArray[np.int64], *, merge: bool, left_out: int | None = None
) -> tuple[NDArray[np.int64], int | None, list[str]]:
    """Merge groups whose answers do not differ, or say which these are.

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1.
        merge: Put them together; else the labels stay, and notes name the groups that are alike.
        left_out: Number of the last group where that holds the texts that fit none; None where there is no such group.

    Returns:
        The labels, numbered by falling size anew where groups were merged, the number of the group of texts that fit none, and
        what the reader should know, in sentences.
    """
    fitting = labels if left_out is None else np.where(labels == left_out, -1, labels)
    sets = alike_groups(answers, fitting)
    if not sets:
        return labels, left_out, []
    if not merge:
        notes = []
        for groups in sets:
            words = _words_of(answers, np.isin(labels, groups))
            numbers = ", ".join(str(group + 1) for group in groups[:-1]) + f" and {groups[-1] + 1}"
            notes.append(
                f"Groups {numbers} do not differ in their answers (mostly {words.most_common(1)[0][0]!r}): "
                "ask for fewer groups, or take k-means with -k auto, which merges them."
            )
        return labels, left_out, notes
    merged = fitting.copy()
    for first, *others in sets:
        merged[np.isin(labels, others)] = first
    kept, sizes = np.unique(merged[merged >= 0], return_counts=True)
    rank = np.full(int(labels.max()) + 2, -1, dtype=np.int64)  # the last one stands for -1
    rank[kept[np.argsort(-sizes, kind="stable")]] = np.arange(len(kept))
    if left_out is not None:
        rank[-1] = left_out = len(kept)
    before = len(np.unique(fitting[fitting >= 0]))
    note = f"{before} groups became {len(kept)}: those whose answers do not differ were merged."
    return rank[merged], left_out, [note]


def same_answers(results: Sequence[GroupedTexts]) -> list[str]:
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


def _words_of(answers: Sequence[str], chosen: NDArray[np.bool_]) -> Weights:
    """Weight of each word in some answers."""
    weights: Weights = Counter()
    for answer, times in Counter(answers[row] for row in np.flatnonzero(chosen).tolist()).items():
        tokens = _plain(answer).split()
        words = [token for token in tokens if token not in stopwords()] or tokens
        for place, word in enumerate(words):  # of each answer the weights are 1 in sum
            weights[word] += times * 2.0**-place / (2 - 2.0 ** (1 - len(words)))  # type: ignore[assignment]
    return weights


def _plain(answer: str) -> str:
    return " ".join(answer.casefold().split())
