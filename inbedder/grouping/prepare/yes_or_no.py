"""Questions that are answered by yes or no: their answers decide the groups, because vectors mix them.

Such answers are often wrong. Under "Was the flight late?", none of the ten of 400 complaints that `mini` answers by yes names a
delay, but 18% of the others do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from inbedder.grouping.describe.describe_groups import describe_groups
from inbedder.grouping.grouped_texts import GroupedTexts
from inbedder.grouping.partition.group_distances import find_nearest_centres
from inbedder.vectors.vectors import normalize_vectors

Result = TypeVar("Result", bound=GroupedTexts)
YES_OR_NO = ("no", "yes")
MIN_CLOSED_SHARE = 0.9
"""Minimum share of answers that are yes or no."""
MIN_ROWS = 2
"""Minimum number of texts of each answer."""
YES_OR_NO_NOTE = (
    "The answers are yes and no, and decide the groups. Models often answer so by chance: read some of the texts, and ask for a "
    'word instead, such as "Is the staff rude or polite?" or "What was late?".'
)


def regroup_by_yes_or_no(result: Result, k: int | str) -> Result:
    """Regroup texts by their answers if these are yes and no.

    Args:
        result: The grouping by vectors.
        k: Number of groups that were asked for, or "auto".

    Returns:
        Two groups named by their answers; other texts join the nearest centre. The grouping as it
        is if the answers are not yes and no, or another number of groups was asked for.
    """
    first_words = np.array([(answer.casefold().split() or [""])[0].strip(".,!") for answer in result.answers])
    members = sorted((np.flatnonzero(first_words == word) for word in YES_OR_NO), key=len, reverse=True)
    sizes = [len(rows) for rows in members]
    answered_count = sum(1 for answer in result.answers if answer.strip())
    if k not in ("auto", 2) or sum(sizes) < MIN_CLOSED_SHARE * answered_count or sizes[1] < MIN_ROWS:
        return result
    directions = normalize_vectors(result.embeddings)
    labels, _ = find_nearest_centres(directions, np.stack([directions[rows].mean(axis=0) for rows in members]))
    for number, rows in enumerate(members):
        labels[rows] = number
    names = [str(first_words[rows[0]]) for rows in members]
    description = describe_groups(result.texts, result.embeddings, labels, result.answers, names)
    notes = [*result.notes, YES_OR_NO_NOTE]
    return replace(
        result, labels=labels, notes=notes, stability=None, choice=None, branches=None, left_out=None, **description._asdict()
    )
