"""Groups of new texts that fit none of a saved grouping's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.describe.explain import find_central_texts, find_keywords
from inbedder.grouping.names.group_contents import GroupContents
from inbedder.grouping.names.naming import deduplicate_names, find_namer, name_groups
from inbedder.grouping.stored.stored_groups import EXAMPLES_PER_GROUP, StoredGroup, count_answers
from inbedder.vectors.vectors import Vectors, normalize_vectors

if TYPE_CHECKING:
    from inbedder.grouping.stored.stored_grouping import StoredGrouping


class Batch(NamedTuple):
    """New texts with their vectors of length 1, answers and pandas index."""

    texts: list[str]
    vectors: Vectors
    answers: list[str]
    index: Any


def describe_new_groups(grouping: StoredGrouping, clusters: Sequence[NDArray[np.intp]], batch: Batch) -> list[StoredGroup]:
    """Describe groups of new texts by keywords and names that distinguish them from the stored groups.

    Args:
        grouping: The stored groups.
        clusters: Positions of the texts of each new group.
        batch: The new texts.

    Returns:
        The new groups.
    """
    first = len(grouping.groups)
    members = np.concatenate(clusters)
    labels = np.repeat(np.arange(first, first + len(clusters)), [len(rows) for rows in clusters])
    stored_phrases = [(phrase, number) for number, group in enumerate(grouping.groups) for phrase in group.list_phrases()]
    new_phrases = batch.answers if any(batch.answers) else batch.texts
    documents = [phrase for phrase, _ in stored_phrases] + [new_phrases[row] for row in members]
    words = find_keywords(documents, np.concatenate([[number for _, number in stored_phrases], labels]).astype(np.int64))
    texts = [batch.texts[row] for row in members]
    examples = find_central_texts(texts, batch.vectors[members], labels - first, EXAMPLES_PER_GROUP)
    names = deduplicate_names(_name_clusters(grouping, clusters, batch, words), words[first:], grouping.names)
    return [
        StoredGroup(
            name, len(rows), group_words, [texts[row] for row in example_rows], count_answers(batch.answers[row] for row in rows)
        )
        for name, rows, group_words, example_rows in zip(names, clusters, words[first:], examples, strict=True)
    ]


def _name_clusters(
    grouping: StoredGrouping, clusters: Sequence[NDArray[np.intp]], batch: Batch, words: list[list[str]]
) -> list[str]:
    """Name new groups with the namer of the stored groups, which it sees too."""
    contents = []
    for number, (group, group_words) in enumerate(zip(grouping.groups, words, strict=False)):
        centre = grouping.centres[[route.target == number for route in grouping.routes]].mean(axis=0)
        phrases = group.list_phrases()
        answers = phrases if group.answers else [""] * len(phrases)
        contents.append(GroupContents(phrases, answers, normalize_vectors([centre] * len(phrases)), group_words))
    for rows, group_words in zip(clusters, words[len(grouping.groups) :], strict=True):
        texts, answers = [batch.texts[row] for row in rows], [batch.answers[row] for row in rows]
        contents.append(GroupContents(texts, answers, batch.vectors[rows], group_words))
    return name_groups(find_namer(grouping.provenance.options.namer), contents)[len(grouping.groups) :]
