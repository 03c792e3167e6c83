"""The built-in namers. A namer is any callable that takes all groups and returns one name for each.

    def longest_phrase(groups): return [max(group.phrases, key=len) for group in groups]

    cluster(texts, "What is the complaint about?", namer=longest_phrase)

A namer sees all groups at once, because a name distinguishes its group from the others. To add a namer, write its function and
its entry in ``NAMERS``; lookup, error message and command-line help follow. The help imports this module, so imports stay cheap.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from inbedder.errors import InputError, format_value
from inbedder.grouping.phrase_names import name_by_phrases

if TYPE_CHECKING:
    from inbedder.vectors.vectors import Vectors

KEYWORDS_PER_NAME = 3
MIN_FITTING_SHARE = 0.5
"""Minimum share of answers that contain one of the words that fit a group."""
MAX_NAME_CHARACTERS = 60
"""Maximum length of a name that is an answer or a text."""
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


Namer = Callable[[Sequence[GroupContents]], Sequence[str]]
"""A callable that takes the k groups of one grouping, the largest first, and returns k names; an empty name becomes keywords."""


class NamerEntry(NamedTuple):
    """An entry of the registry of namers."""

    help: str
    """Short description of the names for ``inbedder cluster --help``."""
    name_groups: Namer | None
    """The namer; None if a model writes the names (``titles.TitleWriter``)."""


def _name_by_keywords(groups: Sequence[GroupContents]) -> list[str]:
    """Join the first keywords as the InBedder paper ranks them; put the most common word first if few answers contain them."""
    words = [group.keywords if group.has_fitting_keywords else [*group.common_words[:1], *group.keywords] for group in groups]
    return [", ".join(group_words[:KEYWORDS_PER_NAME]) for group_words in words]


def _name_by_central_answer(groups: Sequence[GroupContents]) -> list[str]:
    """Take the answer whose mean vector is closest to the group's mean."""
    names = []
    for group in groups:
        rows: dict[str, list[int]] = defaultdict(list)
        for row, phrase in enumerate(group.answers if group.has_answers else group.texts):
            if phrase.strip():
                rows[phrase.strip()].append(row)
        centre = group.vectors.mean(axis=0)
        name = max(rows, key=lambda phrase: float(group.vectors[rows[phrase]].mean(axis=0) @ centre), default="")
        names.append(name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1].rstrip() + "…")
    return names


NAMERS = {
    "phrases": NamerEntry("phrases that most of its answers and texts hold", name_by_phrases),
    "words": NamerEntry("the first keywords of the answers, as in the InBedder paper", _name_by_keywords),
    "central": NamerEntry("the most central answer", _name_by_central_answer),
    "model": NamerEntry("a title that the model writes, best with small, or model:NAME for another model", None),
}


def check_namer(_name: str, value: Any) -> Any:
    """Check a namer: a name of ``NAMERS``, "model:NAME" or a callable."""
    is_known = isinstance(value, str) and (value in NAMERS or (value.startswith("model:") and value != "model:"))
    if not is_known and not callable(value):
        raise InputError(
            f"Unknown namer {format_value(value)}. Choose one of: {', '.join(NAMERS)}, model:NAME, or give a callable."
        )
    return value
