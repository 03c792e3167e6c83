"""Answers of new texts that agree with a group: its common answers and its name.

A text that is shorter or plainer than the stored ones, such as "You lost my bag" among tweets, lies far from every centre, though
its answer, "lost luggage", is the group's most frequent one. An answer agrees with a group if it has all the words of the group's
name, of one of its phrases, or of an answer that several of the group's texts have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.names.phrase_names import compute_stem, split_line
from inbedder.grouping.stored.stored_groups import StoredGroup
from inbedder.vectors.vectors import Labels

MIN_ANSWER_SHARE, MIN_ANSWER_ROWS = 0.02, 2
"""Minimum share and number of a group's texts that have a common answer."""
MAX_DISTANCE_QUANTILE = 0.99
"""Quantile of the stored distances beyond which no answer makes a text fit: foreign texts get frequent answers, too."""


def find_agreeing_answers(answers: Sequence[str], labels: Labels, groups: Sequence[StoredGroup]) -> NDArray[np.bool_]:
    """Find the answers that agree with a group.

    Args:
        answers: n answers; empty ones agree with no group.
        labels: Number of the group of each answer, shape (n,); below 0 for a group that a further question splits, with which
            every answer agrees.
        groups: The groups.

    Returns:
        bool, shape (n,).
    """
    phrases = [_list_common_phrases(group) for group in groups]
    words = [_list_stems(answer) for answer in answers]
    return np.array(
        [
            label < 0 or any(phrase <= own_words for phrase in phrases[label])
            for own_words, label in zip(words, labels.tolist(), strict=True)
        ],
        dtype=np.bool_,
    )


def _list_common_phrases(group: StoredGroup) -> set[frozenset[str]]:
    """List the words of the phrases of a group's name, and those of its common answers; none without answers."""
    counts: Counter[frozenset[str]] = Counter()
    for answer, count in group.answers.items():
        counts[_list_stems(answer)] += count
    minimum = max(MIN_ANSWER_ROWS, MIN_ANSWER_SHARE * group.size)
    common_answers = {words for words, count in counts.items() if count >= minimum}
    name_phrases = {_list_stems(phrase) for phrase in group.name.rpartition(": ")[2].split(",")} if counts else set()
    return (common_answers | name_phrases) - {frozenset()}


def _list_stems(answer: str) -> frozenset[str]:
    """List the stems of the words of an answer; one of stopwords, such as "no", stays whole."""
    stems = frozenset(compute_stem(word) for word in split_line(answer) if len(word) > 1)
    return stems or frozenset([answer.strip().casefold()]) - {""}
