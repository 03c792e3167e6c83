"""The built-in namers. A namer is any callable that takes all groups and returns one name for each.

    def longest_phrase(groups): return [max(group.phrases, key=len) for group in groups]

    cluster(texts, "What is the complaint about?", namer=longest_phrase)

A namer sees all groups at once, because a name distinguishes its group from the others. To add a namer, write its function and
its entry in ``NAMERS``; lookup, error message and command-line help follow. The help imports this module, so imports stay cheap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from inbedder.errors import InputError, format_value
from inbedder.grouping.names.group_contents import KEYWORDS_PER_NAME, GroupContents
from inbedder.grouping.names.phrase_names import name_by_phrases

MAX_NAME_CHARACTERS = 60
"""Maximum length of a name that is an answer or a text."""


Namer = Callable[[Sequence[GroupContents]], Sequence[str]]
"""A callable that takes the k groups of one grouping, the largest first, and returns k names; an empty name becomes keywords."""


class NamerEntry(NamedTuple):
    """An entry of the registry of namers."""

    help: str
    """Short description of the names for ``inbedder cluster --help``."""
    name_groups: Namer
    """The namer."""


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
        name = max(rows, key=lambda phrase: round(float(group.vectors[rows[phrase]].mean(axis=0) @ centre), 9), default="")
        names.append(name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1].rstrip() + "…")
    return names


NAMERS = {
    "phrases": NamerEntry("phrases that most of its answers and texts hold", name_by_phrases),
    "words": NamerEntry("the first keywords of the answers, as in the InBedder paper", _name_by_keywords),
    "central": NamerEntry("the most central answer", _name_by_central_answer),
}


def check_namer(_name: str, value: Any) -> Any:
    """Check a namer: a name of ``NAMERS`` or a callable."""
    if not (isinstance(value, str) and value in NAMERS) and not callable(value):
        raise InputError(f"Unknown namer {format_value(value)}. Choose one of: {', '.join(NAMERS)}, or give a callable.")
    return value
