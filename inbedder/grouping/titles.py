"""A short title for each group, written by a model from the group's own answers.

The model is given a group's most frequent answers in the place of a text and asked what they are about. It may only choose and
order their words: a word that stands in none of the group's answers is dropped, so a title never says what no answer says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.naming import GroupContents

QUESTION = "What is the topic?"
ANSWERS_READ = 30
"""Most distinct answers of a group that the model reads."""
LONGEST = 5
"""Words of a title."""
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class TitleWriter:
    """A namer (``naming.Namer``) whose names a model writes, greedily."""

    def __init__(self, model: InBedder) -> None:
        """Take a model.

        Args:
            model: One that answers, in words of its own where it can, such as ``small``.
        """
        self.model = model

    def __call__(self, groups: Sequence[GroupContents], /) -> list[str]:
        """Write one title per group.

        Args:
            groups: k groups.

        Returns:
            k titles; empty for a group without answers.

        Raises:
            ModelError: When the model does not answer.
        """
        counts = [Counter(answer for answer in group.answers if answer) for group in groups]
        read = ["; ".join(answer for answer, _ in count.most_common(ANSWERS_READ)) for count in counts]
        written = self.model.answer(read, QUESTION)
        return [
            _grounded(str(title), count) or next(iter(dict(count.most_common(1))), "")
            for count, title in zip(counts, written, strict=True)
        ]


def _grounded(title: str, count: Counter[str]) -> str:
    """The title's words that stand in the answers, each once."""
    known = {word.lower() for answer in count for word in WORD.findall(answer)}
    words: dict[str, str] = {}
    for word in WORD.findall(title):
        if word.lower() in known:
            words.setdefault(word.lower(), word)
    return " ".join(list(words.values())[:LONGEST])
