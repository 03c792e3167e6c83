"""Short titles of groups, written by a model from the groups' answers.

The model reads the most frequent answers of a group as one text and answers what they are about. Words of the title that occur in
none of the group's answers are dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.names.group_contents import GroupContents

QUESTION = "What is the topic?"
MAX_ANSWERS = 30
"""Maximum number of distinct answers that the model reads per group."""
MAX_TITLE_WORDS = 5
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True, eq=False)
class TitleWriter:
    """A namer (``namers.Namer``) that lets a model write the names with greedy decoding."""

    model: InBedder
    """A model that answers, preferably in its own words, such as ``small``."""

    def __call__(self, groups: Sequence[GroupContents], /) -> list[str]:
        """Write one title per group.

        Args:
            groups: k groups.

        Returns:
            k titles; empty for a group without answers.

        Raises:
            ModelError: If the model does not answer.
        """
        counts = [Counter(answer for answer in group.answers if answer) for group in groups]
        prompts = ["; ".join(answer for answer, _ in count.most_common(MAX_ANSWERS)) for count in counts]
        titles = self.model.answer(prompts, QUESTION, min_confidence=0)  # a title has only words of the answers
        return [
            _filter_title_words(str(title), count) or next(iter(dict(count.most_common(1))), "")
            for count, title in zip(counts, titles, strict=True)
        ]


def _filter_title_words(title: str, count: Counter[str]) -> str:
    """Keep the distinct words of a title that occur in the answers."""
    answer_words = {word.lower() for answer in count for word in WORD.findall(answer)}
    words: dict[str, str] = {}
    for word in WORD.findall(title):
        if word.lower() in answer_words:
            words.setdefault(word.lower(), word)
    return " ".join(list(words.values())[:MAX_TITLE_WORDS])
