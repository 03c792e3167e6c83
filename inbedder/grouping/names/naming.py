"""Names of groups: no name is empty or "none", or occurs twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from inbedder.errors import InputError, format_value
from inbedder.grouping.names.group_contents import KEYWORDS_PER_NAME, WORD, GroupContents
from inbedder.grouping.names.namers import NAMERS, Namer, check_namer
from inbedder.grouping.names.phrase_names import compute_stem
from inbedder.prompting.words import is_none
from inbedder.vectors.vectors import Vectors, normalize_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inbedder.vectors.vectors import Labels


MAX_ROWS = 2000
"""Maximum number of rows of a group that its name rests on; words of more take long to count and change no name."""


def find_namer(namer: str | Namer) -> Namer:
    """Find a namer by name.

    Args:
        namer: A name in ``NAMERS`` or a callable.

    Returns:
        The namer; a callable is returned as it is.

    Raises:
        InputError: If the namer is unknown.
    """
    return namer if callable(namer) else NAMERS[str(check_namer("namer", namer))].name_groups


def get_namer_name(namer: Namer) -> str:
    """Get the name of a namer for saving, which ``find_namer`` resolves again: "phrases" for a callable of the user."""
    return next((name for name, entry in NAMERS.items() if entry.name_groups is namer), "phrases")


def collect_contents(
    texts: Sequence[str], answers: Sequence[str], vectors: Vectors, labels: Labels, words: Sequence[list[str]]
) -> list[GroupContents]:
    """Collect the contents of each group for a namer: of a large group the answered texts, and others at equal distances.

    Args:
        texts: n texts.
        answers: n answers.
        vectors: Shape (n, d).
        labels: Group of each text, shape (n,), 0 .. k-1.
        words: Keywords of each group, k lists.

    Returns:
        Contents of the k groups.
    """
    groups = []
    for number, keywords in enumerate(words):
        rows = _thin_out(np.flatnonzero(labels == number), answers)
        texts_and_answers = [texts[row] for row in rows.tolist()], [answers[row] for row in rows.tolist()]
        groups.append(GroupContents(*texts_and_answers, normalize_vectors(vectors[rows]), list(keywords)))
    return groups


def _thin_out(rows: NDArray[np.intp], answers: Sequence[str]) -> NDArray[np.intp]:
    """Choose at most ``MAX_ROWS`` rows of a group, those with an answer first, in their order."""
    if len(rows) <= MAX_ROWS:
        return rows
    has_answer = np.array([bool(answers[row]) for row in rows.tolist()])
    answered_rows, unanswered_rows = rows[has_answer], rows[~has_answer]
    free = max(0, MAX_ROWS - len(answered_rows))
    thinned = (
        part[np.linspace(0, len(part) - 1, min(len(part), size), dtype=np.intp)]
        for part, size in ((answered_rows, MAX_ROWS), (unanswered_rows, free))
    )
    return np.sort(np.concatenate([*thinned]))


def name_groups(namer: Namer, groups: Sequence[GroupContents]) -> list[str]:
    """Name groups; replace empty names and "none", and make equal names distinct.

    Args:
        namer: The namer.
        groups: k groups.

    Returns:
        k distinct names of one line each.

    Raises:
        InputError: If the namer does not return a list of k strings.
    """
    raw_names = namer(groups)
    if isinstance(raw_names, str) or len(raw_names) != len(groups) or not all(isinstance(name, str) for name in raw_names):
        raise InputError(
            f"The namer must return a list of {len(groups)} names, one string per group, not {format_value(raw_names)}."
        )
    names = []
    for number, (name, group) in enumerate(zip(raw_names, groups, strict=True), 1):
        candidates = (" ".join(name.split()), ", ".join(group.keywords[:KEYWORDS_PER_NAME]), f"group {number}")
        names.append(next(candidate for candidate in candidates if candidate and not is_none(candidate)))
    return deduplicate_names(names, [group.keywords for group in groups])


def deduplicate_names(names: Sequence[str], words: Sequence[Sequence[str]], used_names: Sequence[str] = ()) -> list[str]:
    """Make equal names distinct, ignoring case.

    Args:
        names: k names.
        words: Keywords of each group, k lists.
        used_names: Names of other groups.

    Returns:
        k names that differ from each other and from the used names. The first of several equal names stays; each later one gets
        its first keyword that makes it distinct and is no form of a word in it, or else a number.
    """
    folded_names = {name.casefold() for name in used_names}
    distinct_names: list[str] = []
    for name, keywords in zip(names, words, strict=True):
        stems = {compute_stem(word) for word in WORD.findall(name.lower())}
        longer_names = (f"{name}, {word}" for word in keywords if compute_stem(word) not in stems)
        numbered_names = (f"{name} {number}" for number in range(2, len(folded_names) + 3))
        distinct_names.append(
            next(each for each in (name, *longer_names, *numbered_names) if each.casefold() not in folded_names)
        )
        folded_names.add(distinct_names[-1].casefold())
    return distinct_names
