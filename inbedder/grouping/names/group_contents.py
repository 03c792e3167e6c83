"""What a namer sees of a group. ``inbedder --help`` imports this module, so imports stay cheap."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Vectors

KEYWORDS_PER_NAME = 3
MIN_FITTING_SHARE = 0.5
"""Minimum share of answers that contain one of the words that fit a group."""
WORD = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True)
class GroupContents:
    """The contents of a group of m texts."""

    texts: list[str]
    """m texts."""
    answers: list[str]
    """The model's answer for each text, m strings; empty for texts that were not answered."""
    vectors: Vectors
    """Vectors of length 1, float32, shape (m, d)."""
    keywords: list[str]
    """Words that distinguish the group from the others, the most distinctive first."""

    @property
    def has_answers(self) -> bool:
        """Whether any answer is not empty."""
        return any(answer.strip() for answer in self.answers)

    @property
    def phrases(self) -> list[str]:
        """The answers that are not empty, or the texts if there are no answers."""
        return [answer for answer in self.answers if answer.strip()] if self.has_answers else self.texts

    @property
    def common_words(self) -> list[str]:
        """Words in at least half of the answers, the most frequent first; empty if there are no answers."""
        answers = self.phrases if self.has_answers else []
        counts = Counter(word for answer in answers for word in dict.fromkeys(WORD.findall(answer.lower())))
        return [word for word, count in counts.most_common() if count >= MIN_FITTING_SHARE * len(answers)]

    @property
    def has_fitting_keywords(self) -> bool:
        """Whether at least half of the phrases contain one of the first three keywords."""
        keywords = set(self.keywords[:KEYWORDS_PER_NAME])
        fitting_count = sum(not keywords.isdisjoint(WORD.findall(phrase.lower())) for phrase in self.phrases)
        return fitting_count >= MIN_FITTING_SHARE * len(self.phrases)
