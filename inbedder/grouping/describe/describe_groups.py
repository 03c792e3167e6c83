"""The description of groups: answers, keywords, examples and names of texts whose groups are known."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import TextCutWarning
from inbedder.grouping.describe.explain import find_central_texts, find_keywords
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.describe.naming import collect_contents, name_groups
from inbedder.grouping.provenance import NO_INSTRUCTION
from inbedder.prompting.words import is_none

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.namers import GroupContents, Namer
    from inbedder.grouping.partition.partition import Labels
    from inbedder.vectors.vectors import Vectors

logger = logging.getLogger(__name__)
Result = TypeVar("Result", bound="GroupedTexts")


class GroupedRows(NamedTuple):
    """n texts in k groups."""

    texts: list[str]
    """n texts."""
    vectors: Vectors
    """Vectors of the texts under the question, shape (n, d)."""
    labels: Labels
    """Group of each text, shape (n,), 0 .. k-1; every group has a text."""
    answers: list[str]
    """n answers; empty if the model does not answer."""


def describe_groups(
    kind: type[Result],
    embedder: InBedder,
    question: str | None,
    rows: GroupedRows,
    namer: Namer | Sequence[str],
    **fields: Any,
) -> Result:
    """Describe groups by their answers, or by the words of their texts if there are no answers.

    Args:
        kind: The class of the result.
        embedder: The model that made vectors and answers.
        question: The question, or None for general-purpose vectors.
        rows: The texts in their groups.
        namer: How the groups are named, or their k names.
        **fields: Further fields of the result, such as ``provenance``.

    Returns:
        The grouping with keywords, examples and names.

    Raises:
        InputError: If the namer does not return a list of k strings.
    """
    texts, vectors, labels, answers = rows
    contents, examples = collect_characteristics(rows, answered=question is not None and embedder.backbone.answers)
    titles = name_groups(namer, contents) if callable(namer) else list(namer)
    return kind(
        instruction=NO_INSTRUCTION if question is None else question,
        texts=texts,
        labels=labels,
        keywords=[group.keywords for group in contents],
        examples=examples,
        answers=answers,
        embeddings=vectors,
        titles=titles,
        mixed=[is_mixed(group) for group in contents],
        **fields,
    )


def collect_characteristics(rows: GroupedRows, *, answered: bool) -> tuple[list[GroupContents], list[list[str]]]:
    """Collect what characterizes groups.

    Args:
        rows: The texts in their groups.
        answered: Whether keywords come from the answers; otherwise, and in a group without any answer, they come from the texts.
            The answer "none" counts as no answer.

    Returns:
        Contents of the k groups with their keywords, and the central texts of each.
    """
    texts, vectors, labels, _ = rows
    answers = ["" if is_none(answer) else answer for answer in rows.answers]
    answered_groups = {label for label, answer in zip(labels.tolist(), answers, strict=True) if answered and answer.strip()}
    words = find_keywords(answers, labels) if answered_groups else [[] for _ in range(int(labels.max()) + 1)]
    if len(answered_groups) < len(words):
        text_words = find_keywords(texts, labels, weighting="standing-out")
        words = [words[group] if group in answered_groups else text_words[group] for group in range(len(words))]
    examples = [[texts[i] for i in central_rows] for central_rows in find_central_texts(texts, vectors, labels)]
    return collect_contents(texts, answers, vectors, labels, words), examples


def answer_rows(
    embedder: InBedder, rows: Sequence[str], instruction: str | None, row_ids: NDArray[np.intp], options: dict[str, Any]
) -> list[str]:
    """Answer the question for some rows.

    Args:
        embedder: The model.
        rows: n texts.
        instruction: The question, or None.
        row_ids: Positions of the texts to answer.
        options: Keyword arguments of ``InBedder.answer``.

    Returns:
        n answers; those of all other rows are empty, as are those without a question or an answering model.
    """
    answers = [""] * len(rows)
    if instruction is None:
        return answers
    if not embedder.backbone.answers:
        logger.info("The model does not answer, so groups are named by the words of their texts.")
        return answers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCutWarning)  # encode has warned already
        new_answers = embedder.answer([rows[i] for i in row_ids], instruction, **options)
    for row, answer in zip(row_ids.tolist(), new_answers, strict=True):
        answers[row] = str(answer)
    return answers
