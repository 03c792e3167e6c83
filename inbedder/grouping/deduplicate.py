"""Duplicates: groups whose vectors differ but whose answers do not, and questions with the same answers.

A reader can only tell two groups apart by the model's answers. The answers of a group are counted word by word without stopwords;
in each answer a word counts twice as much as the next one. The similarity of two groups is the overlap of their words: the sum
over words of the smaller share, 1 if both have the same words equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inbedder.prompting.stopwords import stopwords

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.partition import Labels

MIN_DUPLICATE_OVERLAP = 0.8
"""Two groups with at least this overlap do not differ in their answers."""
MIN_DUPLICATE_KAPPA = 0.6
"""Two questions whose answers agree by this much beyond chance (Cohen's kappa) are reported."""

WordWeights = Counter[str]


def measure_overlap(left: WordWeights, right: WordWeights) -> float:
    """Measure the overlap, 0 to 1, of the word weights of two groups."""
    left_total, right_total = left.total(), right.total()
    return float(sum(min(weight / left_total, right[word] / right_total) for word, weight in left.items()))


def find_duplicate_groups(answers: Sequence[str], labels: Labels) -> list[list[int]]:
    """Find sets of groups whose answers do not differ: in each set every two groups are duplicates (complete linkage).

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for one in no group.

    Returns:
        Groups of each set, in rising order, one set after the other; groups that differ from all others are in none.
    """
    words = {group: _weigh_words(answers, labels == group) for group in range(int(labels.max(initial=-1)) + 1)}
    groups = [group for group in words if words[group]]
    if len(groups) < 2:
        return []
    from sklearn.cluster import AgglomerativeClustering

    distances = np.array([[1 - measure_overlap(words[left], words[right]) for right in groups] for left in groups])
    threshold = 1 - MIN_DUPLICATE_OVERLAP + 1e-9
    linkage = AgglomerativeClustering(None, metric="precomputed", linkage="complete", distance_threshold=threshold)
    sets: dict[int, list[int]] = {}
    for group, number in zip(groups, linkage.fit_predict(distances).tolist(), strict=True):
        sets.setdefault(number, []).append(group)
    return sorted(each for each in sets.values() if len(each) > 1)


def merge_duplicate_groups(
    answers: Sequence[str], labels: Labels, *, merge: bool, left_out: int | None = None
) -> tuple[Labels, int | None, list[str]]:
    """Merge groups whose answers do not differ, or report them.

    Args:
        answers: One answer per text, n strings; empty ones are not counted.
        labels: Group of each text, shape (n,), 0 .. k-1.
        merge: Merge them; otherwise the labels stay, and notes name the duplicates.
        left_out: Number of the last group where that holds the texts that fit none; None where there is no such group.

    Returns:
        The labels, numbered by falling size anew where groups were merged, the number of the group of texts that fit none, and
        what the reader should know, in sentences.
    """
    fitting = labels if left_out is None else np.where(labels == left_out, -1, labels)
    sets = find_duplicate_groups(answers, fitting)
    if not sets:
        return labels, left_out, []
    if not merge:
        notes = []
        for groups in sets:
            words = _weigh_words(answers, np.isin(labels, groups))
            numbers = ", ".join(str(group + 1) for group in groups[:-1]) + f" and {groups[-1] + 1}"
            notes.append(
                f"Groups {numbers} do not differ in their answers (mostly {words.most_common(1)[0][0]!r}): "
                "ask for fewer groups, or take k-means with -k auto, which merges them."
            )
        return labels, left_out, notes
    merged = fitting.copy()
    for first, *others in sets:
        merged[np.isin(labels, others)] = first
    remaining, sizes = np.unique(merged[merged >= 0], return_counts=True)
    rank = np.full(int(labels.max()) + 2, -1, dtype=np.int64)  # the last entry is that of -1
    rank[remaining[np.argsort(-sizes, kind="stable")]] = np.arange(len(remaining))
    if left_out is not None:
        rank[-1] = left_out = len(remaining)
    old_count = len(np.unique(fitting[fitting >= 0]))
    note = f"{old_count} groups became {len(remaining)}: those whose answers do not differ were merged."
    return rank[merged], left_out, [note]


def describe_duplicate_questions(results: Sequence[GroupedTexts]) -> list[str]:
    """Describe questions that the model answers as it answers another one.

    Args:
        results: Groupings of the same texts.

    Returns:
        A sentence for each pair of different questions whose answers agree in most texts and far beyond chance.
    """
    notes = []
    for left, right in combinations(results, 2):
        pairs = [(_normalize(a), _normalize(b)) for a, b in zip(left.answers, right.answers, strict=True) if a and b]
        share = sum(a == b for a, b in pairs) / max(1, len(pairs))
        firsts, seconds = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
        chance = sum(count * seconds[answer] for answer, count in firsts.items()) / max(1, len(pairs)) ** 2
        if left.instruction != right.instruction and share - chance >= MIN_DUPLICATE_KAPPA * (1 - chance) > 0:
            notes.append(
                f"{share:.0%} of the answers to {right.instruction!r} are those to {left.instruction!r}: if the questions do not "
                "mean the same, the model does not understand one of them. Ask it in plainer words, or take a larger model."
            )
    return notes


def _weigh_words(answers: Sequence[str], is_member: NDArray[np.bool_]) -> WordWeights:
    """Weigh each word in some answers."""
    weights: WordWeights = Counter()
    for answer, times in Counter(answers[row] for row in np.flatnonzero(is_member).tolist()).items():
        tokens = _normalize(answer).split()
        words = [token for token in tokens if token not in stopwords()] or tokens
        for position, word in enumerate(words):  # the weights of an answer sum to 1
            weights[word] += times * 2.0**-position / (2 - 2.0 ** (1 - len(words)))  # type: ignore[assignment]
    return weights


def _normalize(answer: str) -> str:
    return " ".join(answer.casefold().split())
