"""Duplicate groups, whose vectors differ but whose answers do not, and duplicate questions.

Readers distinguish groups by the model's answers. The words of a group's answers are counted without stopwords; in each answer a
word weighs twice as much as the next one. The similarity of two groups is the overlap of their words: the sum over words of the
smaller share, which is 1 if both groups have the same words equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import format_names
from inbedder.grouping.partition.partition import mark_left_out
from inbedder.prompting.words import split_answer

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.vectors.vectors import Labels

MIN_DUPLICATE_OVERLAP = 0.7
"""Minimum mean overlap of groups with the same answers. The labelled sets of ``scripts.bench.grouping`` do not tell 0.6 from 0.7,
but 0.6 merges flights with cancelled flights."""
MIN_DUPLICATE_KAPPA = 0.6
"""Minimum agreement of the answers to two questions beyond chance (Cohen's kappa) that is reported."""

WordWeights = Counter[str]


def measure_overlap(first: WordWeights, second: WordWeights) -> float:
    """Measure the overlap of the word weights of two groups, 0 to 1."""
    first_total, second_total = first.total(), second.total()
    return float(sum(min(weight / first_total, second[word] / second_total) for word, weight in first.items()))


def find_duplicate_groups(answers: Sequence[str], labels: Labels) -> list[list[int]]:
    """Find sets of groups whose answers hardly differ: on average over its pairs, a set's groups are duplicates.

    Args:
        answers: One answer per text, n strings; empty answers do not count.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.

    Returns:
        The sets, each with its groups in rising order; a group without duplicates is in no set.
    """
    words = {group: _weigh_words(answers, labels == group) for group in range(int(labels.max(initial=-1)) + 1)}
    groups = [group for group in words if words[group]]
    if len(groups) < 2:
        return []
    from sklearn.cluster import AgglomerativeClustering

    distances = np.array([[1 - measure_overlap(words[group], words[column]) for column in groups] for group in groups])
    threshold = 1 - MIN_DUPLICATE_OVERLAP + 1e-9
    linkage = AgglomerativeClustering(None, metric="precomputed", linkage="average", distance_threshold=threshold)
    sets: dict[int, list[int]] = {}
    for group, number in zip(groups, linkage.fit_predict(distances).tolist(), strict=True):
        sets.setdefault(number, []).append(group)
    return sorted(each for each in sets.values() if len(each) > 1)


def merge_duplicate_groups(
    answers: Sequence[str], labels: Labels, *, merge: bool, left_out: int | None = None
) -> tuple[Labels, int | None, list[str]]:
    """Merge groups whose answers hardly differ, or report them.

    If the answers of all groups are the same, they do not tell which groups belong together, so all stay.

    Args:
        answers: One answer per text, n strings; empty answers do not count.
        labels: Group of each text, shape (n,), 0 .. k-1.
        merge: Whether to merge them; otherwise the labels stay and notes name the duplicates.
        left_out: Number of the last group if it holds the texts that fit none, else None.

    Returns:
        The labels, renumbered by falling size if groups were merged; the number of the group of texts that fit none; and notes
        for the reader.
    """
    fitting = mark_left_out(labels, left_out)
    sets = find_duplicate_groups(answers, fitting)
    if not sets:
        return labels, left_out, []
    if not merge:
        notes = []
        for groups in sets:
            words = _weigh_words(answers, np.isin(labels, groups))
            numbers = ", ".join(str(group + 1) for group in groups[:-1]) + f" and {groups[-1] + 1}"
            notes.append(
                f"Groups {numbers} hardly differ in their answers (mostly {words.most_common(1)[0][0]!r}): "
                "ask for fewer groups, or let their number be chosen, which merges such groups."
            )
        return labels, left_out, notes
    merged = fitting.copy()
    for first, *duplicates in sets:
        merged[np.isin(labels, duplicates)] = first
    remaining, sizes = np.unique(merged[merged >= 0], return_counts=True)
    if len(remaining) == 1:
        common_word = _weigh_words(answers, merged >= 0).most_common(1)[0][0]
        note = f"The groups hardly differ in their answers (mostly {common_word!r}): the question may not fit these texts."
        return labels, left_out, [note]
    rank = np.full(int(labels.max()) + 2, -1, dtype=np.int64)  # the last entry is for -1
    rank[remaining[np.argsort(-sizes, kind="stable")]] = np.arange(len(remaining))
    if left_out is not None:
        rank[-1] = left_out = len(remaining)
    old_count = len(np.unique(fitting[fitting >= 0]))
    common_words = [_weigh_words(answers, np.isin(labels, groups)).most_common(1)[0][0] for groups in sets]
    note = (
        f"{old_count} groups became {len(remaining)}: groups with mostly the same answers ({format_names(common_words)}) were "
        f"merged. Ask for {old_count} groups to keep them apart."
    )
    return rank[merged], left_out, [note]


def describe_duplicate_questions(results: Sequence[GroupedTexts]) -> list[str]:
    """Describe questions that the model answers like another question.

    Args:
        results: Groupings of the same texts.

    Returns:
        One sentence per pair of different questions whose answers agree far beyond chance.
    """
    notes = []
    for first, second in combinations(results, 2):
        pairs = [(_normalize(a), _normalize(b)) for a, b in zip(first.answers, second.answers, strict=True) if a and b]
        share = sum(a == b for a, b in pairs) / max(1, len(pairs))
        first_counts, second_counts = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
        chance = sum(count * second_counts[answer] for answer, count in first_counts.items()) / max(1, len(pairs)) ** 2
        if first.instruction != second.instruction and share - chance >= MIN_DUPLICATE_KAPPA * (1 - chance) > 0:
            notes.append(
                f"{share:.0%} of the answers to {second.instruction!r} equal those to {first.instruction!r}. If the questions "
                "differ in meaning, the model misunderstands one of them. Use plainer words."
            )
    return notes


def _weigh_words(answers: Sequence[str], is_member: NDArray[np.bool_]) -> WordWeights:
    """Weigh the words of the members' answers."""
    weights: WordWeights = Counter()
    for answer, count in Counter(answers[row] for row in np.flatnonzero(is_member).tolist()).items():
        words = split_answer(answer)
        for position, word in enumerate(words):  # the weights of an answer sum to 1
            weights[word] += count * 2.0**-position / (2 - 2.0 ** (1 - len(words)))  # type: ignore[assignment]
    return weights


def _normalize(answer: str) -> str:
    return " ".join(answer.casefold().split())
