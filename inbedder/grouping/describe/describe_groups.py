"""The description of groups: keywords, examples and names of texts whose groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from inbedder.grouping.describe.explain import find_central_texts, find_keywords
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.names.naming import collect_contents, name_groups
from inbedder.prompting.words import is_none

if TYPE_CHECKING:
    from inbedder.grouping.names.namers import Namer
    from inbedder.vectors.vectors import Labels, Vectors


class GroupDescription(NamedTuple):
    """The fields of ``GroupedTexts`` that describe k groups."""

    keywords: list[list[str]]
    """Words that characterize each group."""
    examples: list[list[str]]
    """The most central texts of each group."""
    mixed: list[bool]
    """Whether the answers of each group are too different for one name."""
    titles: list[str]
    """Name of each group."""


def describe_groups(
    texts: Sequence[str], vectors: Vectors, labels: Labels, answers: Sequence[str], namer: Namer | Sequence[str]
) -> GroupDescription:
    """Describe groups by their answers; a group without an answer, by the words of its texts.

    Args:
        texts: n texts.
        vectors: Vectors of the texts under the question, shape (n, d).
        labels: Group of each text, shape (n,), 0 .. k-1; every group has a text.
        answers: n answers; empty if the model does not answer. The answer "none" counts as no answer.
        namer: How the groups are named, or their k names.

    Returns:
        Keywords, examples and names of the k groups.

    Raises:
        InputError: If the namer does not return a list of k strings.
    """
    answers = ["" if is_none(answer) else answer for answer in answers]
    answered_groups = {label for label, answer in zip(labels.tolist(), answers, strict=True) if answer.strip()}
    keywords = find_keywords(answers, labels) if answered_groups else [[] for _ in range(int(labels.max()) + 1)]
    if len(answered_groups) < len(keywords):
        text_words = find_keywords(texts, labels, weighting="standing-out")
        keywords = [keywords[group] if group in answered_groups else text_words[group] for group in range(len(keywords))]
    contents = collect_contents(texts, answers, vectors, labels, keywords)
    return GroupDescription(
        keywords=[group.keywords for group in contents],
        examples=[[texts[row] for row in rows] for rows in find_central_texts(texts, vectors, labels)],
        mixed=[is_mixed(group) for group in contents],
        titles=name_groups(namer, contents) if callable(namer) else list(namer),
    )
