"""A short title for each group, written by the model from the group's own answers.

The model is given a group's most frequent answers in the place of a text and asked what they are about. It may only choose and
order their words: a word that stands in none of the group's answers is dropped, so a title never says what no answer says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from inbedder.embedder import InBedder

QUESTION = "What is the topic?"
ANSWERS_READ = 30
"""Most distinct answers of a group that the model reads."""
LONGEST = 5
"""Words of a title."""
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def group_titles(model: InBedder, answers: Sequence[str], labels: NDArray[np.int64]) -> list[str]:
    """Let a model write one title per group, greedily.

    Args:
        model: A model that answers.
        answers: One answer per text, n strings; empty ones are not read.
        labels: Group of each text, shape (n,), 0 .. k-1.

    Returns:
        k titles, all different; empty for a group without answers.

    Raises:
        ModelError: When the model does not answer.
    """
    groups = [np.flatnonzero(labels == group) for group in range(int(labels.max()) + 1)]
    counts = [Counter(answers[row] for row in rows.tolist() if answers[row]) for rows in groups]
    read = ["; ".join(answer for answer, _ in count.most_common(ANSWERS_READ)) for count in counts]
    written = model.answer(read, QUESTION)
    titles: list[str] = []
    for count, title in zip(counts, written, strict=True):
        kept = _grounded(str(title), count) or next(iter(dict(count.most_common(1))), "")
        titles.append(_distinct(kept, count, titles))
    return titles


def _grounded(title: str, count: Counter[str]) -> str:
    """The title's words that stand in the answers, each once."""
    known = {word.lower() for answer in count for word in WORD.findall(answer)}
    words: dict[str, str] = {}
    for word in WORD.findall(title):
        if word.lower() in known:
            words.setdefault(word.lower(), word)
    return " ".join(list(words.values())[:LONGEST])


def _distinct(title: str, count: Counter[str], taken: Sequence[str]) -> str:
    """The title, with a frequent answer behind it where another group has it already."""
    if not title or title not in taken:
        return title
    others = (f"{title} ({answer})" for answer, _ in count.most_common() if answer.lower() != title.lower())
    return next((other for other in others if other not in taken), f"{title} {len(taken) + 1}")
