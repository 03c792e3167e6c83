"""What a saved grouping keeps of each group, and where the texts near each centre belong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_value

STORED_ANSWERS_PER_GROUP = 50
"""Maximum number of distinct answers saved per group."""
EXAMPLES_PER_GROUP, KEYWORDS_PER_GROUP = 5, 8
"""Numbers of central texts and keywords saved per group."""


@dataclass
class StoredGroup:
    """A saved group without its centre."""

    name: str
    """Name of the group."""
    size: int
    """Number of texts in the group."""
    keywords: list[str]
    """Keywords of the group."""
    examples: list[str]
    """The most central texts."""
    answers: dict[str, int]
    """The most frequent answers and their counts."""
    by_hand: bool = False
    """Whether the user set the name."""
    loose: bool = False
    """Whether the group was loose (``loose_groups.explain_loose_group``) when it was made."""

    def is_valid(self) -> bool:
        """Return whether every field has its type and no count is negative, which is not sure after loading."""
        if not (isinstance(self.keywords, list) and isinstance(self.examples, list) and isinstance(self.answers, dict)):
            return False
        texts, counts = (self.name, *self.keywords, *self.examples, *self.answers), (self.size, *self.answers.values())
        return all(isinstance(text, str) for text in texts) and all(type(count) is int and count >= 0 for count in counts)

    def list_phrases(self) -> list[str]:
        """List the answers, repeated by their counts, or the examples if there are no answers."""
        return [answer for answer, count in self.answers.items() for _ in range(count)] or self.examples


class Route(NamedTuple):
    """Where the texts near a centre belong. Level 0 has the grouping's question; each further level that of a split group."""

    level: int
    """Level of the centre."""
    target: int
    """Number of a group; or -j if the texts go on to level j."""

    @classmethod
    def parse(cls, values: Any, levels: int) -> list[Route]:
        """Parse the routes of a saved grouping.

        Args:
            values: Pairs of level and target.
            levels: Number of levels.

        Returns:
            The routes.

        Raises:
            InputError: If a value is out of range, or a route leads back.
        """
        routes = [cls(check_integer("level", level, 0, levels - 1), check_integer("target", target)) for level, target in values]
        if lost := [route for route in routes if route.target < 0 and not route.level < -route.target < levels]:
            raise InputError(f"The route {format_value(lost[0])} leads to no later level.")
        return routes


def count_answers(answers: Iterable[str]) -> dict[str, int]:
    """Count the most frequent answers; empty ones do not count."""
    return dict(Counter(answer for answer in answers if answer).most_common(STORED_ANSWERS_PER_GROUP))


def name_parts(parent: str, names: Sequence[str]) -> list[str]:
    """Name the parts of a split group: the name of the group, and of each part what that does not say already.

    Args:
        parent: Name of the group.
        names: Names of its parts.

    Returns:
        One name per part, such as "late flight: crew"; distinct, as the parts' names are.
    """
    parent_words = set(parent.casefold().replace(",", " ").split())
    shorter_names = []
    for name in names:
        phrases = [phrase for phrase in name.split(", ") if not set(phrase.casefold().split()) <= parent_words]
        shorter_names.append(", ".join(phrases) or name)
    is_distinct = len({name.casefold() for name in shorter_names}) == len(names)
    return [f"{parent}: {name}" for name in (shorter_names if is_distinct else names)]


def check_new_names(names: Iterable[str], other_names: Sequence[str]) -> None:
    """Check that new names of groups are not empty and differ from each other and from other names.

    Args:
        names: The new names.
        other_names: Names of the other groups.

    Raises:
        InputError: If a name is empty or occurs twice.
    """
    new_names = list(names)
    for name in new_names:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{format_value(name)} is not a valid name of a group. Give a non-empty string.")
    if duplicates := [name for name, count in Counter([*new_names, *other_names]).items() if count > 1 and name in new_names]:
        raise InputError(f"Two groups would have the name {format_value(duplicates[0])}. Give each group its own name.")


def merge_stored_groups(groups: Sequence[StoredGroup], name: str | None) -> StoredGroup:
    """Merge groups.

    Args:
        groups: Two or more groups.
        name: The new name, or None for that of the largest group.

    Returns:
        The merged group.
    """
    largest = max(groups, key=lambda group: group.size)
    answers: Counter[str] = Counter()
    for group in groups:
        answers.update(group.answers)
    return StoredGroup(
        name or largest.name,
        sum(group.size for group in groups),
        _take_in_turn([group.keywords for group in groups], KEYWORDS_PER_GROUP),
        _take_in_turn([group.examples for group in groups], EXAMPLES_PER_GROUP),
        dict(answers.most_common(STORED_ANSWERS_PER_GROUP)),
        by_hand=name is not None or largest.by_hand,
        loose=any(group.loose for group in groups),
    )


def _take_in_turn(lists: Sequence[Sequence[str]], limit: int) -> list[str]:
    """Take entries of several lists in turn, each once."""
    return list(dict.fromkeys(entry for entry in chain.from_iterable(zip_longest(*lists)) if entry is not None))[:limit]
