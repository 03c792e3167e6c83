"""Texts between two groups: their vectors lie in one, and their answers say that they belong to another.

The evidence for a group is the logarithm of the text's share of it (``group_shares``), plus that of how much more often the
group's other answers hold the words of the text's answer than all answers do. A text with more evidence for another group than
for its own lies between the two. It stays where it is: on seven labelled sets the labels of such texts agree with neither group
more often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.partition.group_shares import measure_group_shares
from inbedder.prompting.words import split_answer
from inbedder.vectors.vectors import Labels, Vectors

PRIOR_TEXTS = 10
"""Number of texts that the shares of words among all answers count for in each group, so that rare words say little."""
MIN_SHARE = 1e-6
"""Minimum share of a group in a text, so that its logarithm is finite."""


def find_second_groups(vectors: Vectors, labels: Labels, answers: Sequence[str]) -> Labels:
    """Find the second group of each text that lies between two.

    Args:
        vectors: Shape (n, d); only their directions count.
        labels: Group of each text, shape (n,), 0 .. k-1; -1 for a text in no group.
        answers: n answers; a text with an empty answer lies in its group alone.

    Returns:
        int64, shape (n,); -1 for a text that lies in its group alone, or in none.
    """
    second = np.full(len(labels), -1, dtype=np.int64)
    words = [frozenset(split_answer(answer)) for answer in answers]
    rows = np.flatnonzero((labels >= 0) & np.array([bool(each) for each in words], dtype=bool))
    if not len(rows) or labels.max() < 1:
        return second
    evidence = np.log(np.maximum(measure_group_shares(vectors, labels)[rows], MIN_SHARE))
    evidence += _weigh_answers([words[row] for row in rows.tolist()], labels[rows], evidence.shape[1])
    evidence = evidence.round(9)
    own_evidence, best = evidence[np.arange(len(rows)), labels[rows]], evidence.argmax(axis=1)
    second[rows] = np.where(evidence.max(axis=1) > own_evidence, best, -1)
    return second


def _weigh_answers(words: Sequence[frozenset[str]], labels: Labels, group_count: int) -> NDArray[np.float64]:
    """Compute the mean log odds of the words of each answer in each group, not counting the answer itself, shape (n, k)."""
    positions = {word: i for i, word in enumerate(sorted(frozenset[str]().union(*words)))}
    counts = np.zeros((len(positions), group_count))
    for (label, word), count in Counter(
        (label, word) for label, each in zip(labels.tolist(), words, strict=True) for word in each
    ).items():
        counts[positions[word], label] = count
    shares, sizes = counts.sum(axis=1) / len(words), np.bincount(labels, minlength=group_count)
    pairs = list(zip(labels.tolist(), words, strict=True))
    odds = {}
    for label, each in set(pairs):
        columns, own_text = [positions[word] for word in each], np.arange(group_count) == label
        expected = PRIOR_TEXTS * shares[columns, None]
        ratios = (counts[columns] - own_text + expected) / (sizes - own_text + PRIOR_TEXTS) / shares[columns, None]
        odds[label, each] = np.log(ratios).mean(axis=0)
    return np.array([odds[pair] for pair in pairs])
