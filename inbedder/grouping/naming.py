"""Names of groups, by namers that can be swapped: a namer is any callable that takes all groups and gives one name for each.

    def longest_answer(groups): return [max(group.said, key=len) for group in groups]

    cluster(texts, "What is the complaint about?", namer=longest_answer)

It sees all groups at once, since a name has to tell its group apart from the others. Those that come along:

- ``words`` (the default): the first keywords, as the InBedder paper ranks them; where few answers hold one of them, behind the
  word that most answers hold.
- ``class-tfidf``: the same number of words by class-based TF-IDF, as BERTopic's.
- ``central``: the answer in the middle of the group.
- ``model``: a title that the model writes from the group's answers; ``model:small`` lets another model write it.

Whatever a namer gives, ``name_groups`` sees to it that no name is empty or comes twice, and that groups of mixed answers say so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from inbedder.errors import InputError, shown
from inbedder.grouping.explain import keywords
from inbedder.grouping.titles import TitleWriter
from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.partition import Labels

Result = TypeVar("Result", bound="GroupedTexts")
WORDS = 3
"""Keywords of a name."""
FITS = 0.5
"""Words fit a group where at least this share of its answers holds one of them."""
MARK = " (mixed)"
LONGEST = 60
"""Characters of a name that is a text."""
WORD = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True)
class GroupContents:
    """What a namer is given of a group: entry i of each list belongs to its text i."""

    texts: list[str]
    """Its m texts."""
    answers: list[str]
    """What the model answered for each, m strings; empty ones of texts that it was not asked about or did not answer."""
    vectors: Vectors
    """float32, shape (m, d), of length 1."""
    keywords: list[str]
    """Words that tell it apart from the other groups, the most telling first."""

    @property
    def answered(self) -> bool:
        """Whether there is an answer at all."""
        return any(answer.strip() for answer in self.answers)

    @property
    def said(self) -> list[str]:
        """Its answers without the empty ones, or its texts where there is none."""
        return [answer for answer in self.answers if answer.strip()] if self.answered else self.texts

    @property
    def common(self) -> list[str]:
        """Words that at least half of its answers hold, the most frequent first; none where there is no answer."""
        said = self.said if self.answered else []
        counts = Counter(word for one in said for word in dict.fromkeys(_words(one)))
        return [word for word, count in counts.most_common() if count >= FITS * len(said)]

    @property
    def keywords_fit(self) -> bool:
        """Whether at least half of what it says holds one of its first keywords."""
        first = set(self.keywords[:WORDS])
        return sum(not first.isdisjoint(_words(one)) for one in self.said) >= FITS * len(self.said)


class Namer(Protocol):
    """Gives groups their names."""

    def __call__(self, groups: Sequence[GroupContents], /) -> Sequence[str]:
        """Name groups.

        Args:
            groups: The k groups of one grouping, the largest first.

        Returns:
            k names; an empty one leaves it to the group's keywords.
        """
        ...


def find_namer(namer: str | Namer, model: InBedder) -> Namer:
    """Look a namer up.

    Args:
        namer: "words", "class-tfidf", "central", "model", "model:" with the name of another model, or a callable.
        model: The model that answered.

    Returns:
        The namer.

    Raises:
        InputError: When there is no such namer, or its model does not answer.
    """
    if callable(namer):
        return namer
    asked = str(namer)
    if asked in _SIMPLE:
        return _SIMPLE[asked]
    name, _, other = asked.partition(":")
    if name != "model" or (other == "" and asked != "model"):
        raise InputError(f"There is no namer {shown(namer)}. Choose {', '.join(_SIMPLE)}, model, model:NAME, or give a callable.")
    writer = type(model)(other) if other else model
    if not writer.backbone.answers:
        raise InputError(f"{writer.name} does not answer, so it cannot write names. Choose another namer, or model:small.")
    return TitleWriter(writer)


def name_of(namer: Namer, model: InBedder) -> str:
    """What ``find_namer`` finds a namer by, so that it can be kept.

    Args:
        namer: A namer.
        model: The model that answered.

    Returns:
        Its name; "words" for a callable of the user's own.
    """
    if isinstance(namer, TitleWriter):
        return "model" if namer.model is model else f"model:{namer.model.name}"
    return next((name for name, known in _SIMPLE.items() if known is namer), "words")


def contents(
    texts: Sequence[str], answers: Sequence[str], vectors: Vectors, labels: Labels, words: Sequence[list[str]]
) -> list[GroupContents]:
    """The groups as namers see them.

    Args:
        texts: n texts.
        answers: n answers.
        vectors: Shape (n, d).
        labels: Group of each text, shape (n,), 0 .. k-1.
        words: Keywords of each group, k lists.

    Returns:
        k groups.
    """
    groups = []
    for number, found in enumerate(words):
        rows = np.flatnonzero(labels == number)
        listed = rows.tolist()
        groups.append(GroupContents([texts[i] for i in listed], [answers[i] for i in listed], unit(vectors[rows]), list(found)))
    return groups


def name_groups(namer: Namer, groups: Sequence[GroupContents]) -> list[str]:
    """Name groups: one line each, none empty, none twice, and groups of mixed answers say so.

    Args:
        namer: What names them.
        groups: k groups.

    Returns:
        k names.

    Raises:
        InputError: When the namer gives no list of k strings.
    """
    given = namer(groups)
    if isinstance(given, str) or len(given) != len(groups) or not all(isinstance(name, str) for name in given):
        raise InputError(f"The namer must give a list of {len(groups)} names, one string per group, not {shown(given)}.")
    names = [
        (" ".join(name.split()) or _first_words(group.keywords) or f"group {number}") + MARK * is_mixed(group)
        for number, (name, group) in enumerate(zip(given, groups, strict=True), 1)
    ]
    return distinct(names, [group.keywords for group in groups])


def is_mixed(group: GroupContents) -> bool:
    """Whether the answers of a group have so little in common that no name fits most of them.

    Args:
        group: The group.

    Returns:
        True where less than half of its answers hold one of its first three keywords, and no word stands in half of them; False
        where the model answers nothing.
    """
    return group.answered and not group.keywords_fit and not group.common


def distinct(names: Sequence[str], words: Sequence[Sequence[str]], taken: Sequence[str] = ()) -> list[str]:
    """Set equal names apart, whatever their case.

    Args:
        names: k names.
        words: Keywords of each group, k lists.
        taken: Names that others have already.

    Returns:
        k names that differ from each other and from the taken ones: the first of equal ones keeps its name, each later one gets
        the first of its keywords that sets it apart, else a number.
    """
    known = {name.removesuffix(MARK).casefold() for name in taken}
    apart: list[str] = []
    for name, found in zip(names, words, strict=True):
        plain = name.removesuffix(MARK)
        longer = (f"{plain}, {word}" for word in found if word not in _words(plain))
        numbered = (f"{plain} {number}" for number in range(2, len(known) + 3))
        chosen = next(one for one in (plain, *longer, *numbered) if one.casefold() not in known)
        known.add(chosen.casefold())
        apart.append(chosen + name[len(plain) :])
    return apart


def set_apart(results: Sequence[Result]) -> list[Result]:
    """Groupings that are shown side by side, named so that no name comes twice among them.

    Args:
        results: The groupings.

    Returns:
        The groupings, those unchanged whose names are.
    """
    taken: list[str] = []
    apart = []
    for result in results:
        names = distinct(result.names, result.keywords, taken)
        apart.append(result if names == result.names else replace(result, titles=names))
        taken += names
    return apart


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _first_words(words: Sequence[str]) -> str:
    return ", ".join(words[:WORDS])


def _by_words(groups: Sequence[GroupContents]) -> list[str]:
    return [_first_words(group.keywords if group.keywords_fit else [*group.common[:1], *group.keywords]) for group in groups]


def _by_class_words(groups: Sequence[GroupContents]) -> list[str]:
    said = [one for group in groups for one in group.said]
    labels = np.repeat(np.arange(len(groups)), [len(group.said) for group in groups])
    return [_first_words(words) for words in keywords(said, labels, WORDS, weighting="class-tfidf")]


def _by_central_answer(groups: Sequence[GroupContents]) -> list[str]:
    """The answer whose texts' mean lies nearest to the group's mean."""
    names = []
    for group in groups:
        rows: dict[str, list[int]] = defaultdict(list)
        for row, one in enumerate(group.answers if group.answered else group.texts):
            if one.strip():
                rows[one.strip()].append(row)
        middle = group.vectors.mean(axis=0)
        nearest = max(rows, key=lambda one: float(group.vectors[rows[one]].mean(axis=0) @ middle), default="")
        names.append(nearest if len(nearest) <= LONGEST else nearest[: LONGEST - 1].rstrip() + "…")
    return names


_SIMPLE: dict[str, Namer] = {"words": _by_words, "class-tfidf": _by_class_words, "central": _by_central_answer}
"""Namers that need no model."""
