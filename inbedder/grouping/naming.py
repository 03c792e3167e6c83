"""Names of groups: whatever a namer returns (see ``namers``), no name is empty or comes twice, and mixed groups say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from inbedder.errors import InputError, shown
from inbedder.grouping.namers import KEYWORDS_PER_NAME, NAMERS, WORD, GroupContents, Namer
from inbedder.grouping.titles import TitleWriter
from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.partition import Labels

Result = TypeVar("Result", bound="GroupedTexts")
MIXED_SUFFIX = " (mixed)"


def find_namer(namer: str | Namer, model: InBedder) -> Namer:
    """Look up a namer.

    Args:
        namer: A name in ``NAMERS``, "model:" with the name of another model, or a callable.
        model: The model that answered.

    Returns:
        The namer.

    Raises:
        InputError: When there is no such namer, or its model does not answer.
    """
    if callable(namer):
        return namer
    name, _, other_model = str(namer).partition(":")
    entry = NAMERS.get(str(namer)) or (NAMERS["model"] if name == "model" and other_model else None)
    if entry is None:
        raise InputError(f"There is no namer {shown(namer)}. Choose {', '.join(NAMERS)}, model:NAME, or give a callable.")
    if entry.name_groups is not None:
        return entry.name_groups
    writer = type(model)(other_model) if other_model else model
    if not writer.backbone.answers:
        raise InputError(f"{writer.name} does not answer, so it cannot write names. Choose another namer, or model:small.")
    return TitleWriter(writer)


def get_namer_name(namer: Namer, model: InBedder) -> str:
    """Get the name by which ``find_namer`` finds a namer again, for saving: "words" for a callable of the user's own."""
    if isinstance(namer, TitleWriter):
        return "model" if namer.model is model else f"model:{namer.model.name}"
    return next((name for name, entry in NAMERS.items() if entry.name_groups is namer), "words")


def collect_contents(
    texts: Sequence[str], answers: Sequence[str], vectors: Vectors, labels: Labels, words: Sequence[list[str]]
) -> list[GroupContents]:
    """Collect the groups as namers see them.

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
    for number, keywords in enumerate(words):
        rows = np.flatnonzero(labels == number)
        texts_and_answers = [texts[row] for row in rows.tolist()], [answers[row] for row in rows.tolist()]
        groups.append(GroupContents(*texts_and_answers, unit(vectors[rows]), list(keywords)))
    return groups


def name_groups(namer: Namer, groups: Sequence[GroupContents]) -> list[str]:
    """Name groups in one line each: none empty, none twice, groups of mixed answers marked.

    Args:
        namer: What names them.
        groups: k groups.

    Returns:
        k names.

    Raises:
        InputError: When the namer gives no list of k strings.
    """
    raw_names = namer(groups)
    if isinstance(raw_names, str) or len(raw_names) != len(groups) or not all(isinstance(name, str) for name in raw_names):
        raise InputError(f"The namer must give a list of {len(groups)} names, one string per group, not {shown(raw_names)}.")
    names = []
    for number, (name, group) in enumerate(zip(raw_names, groups, strict=True), 1):
        stem = " ".join(name.split()) or ", ".join(group.keywords[:KEYWORDS_PER_NAME]) or f"group {number}"
        names.append(stem + MIXED_SUFFIX * is_mixed(group))
    return deduplicate_names(names, [group.keywords for group in groups])


def is_mixed(group: GroupContents) -> bool:
    """Check whether the answers of a group have too little in common for any name to fit most of them.

    Args:
        group: The group.

    Returns:
        True if fewer than half of its answers contain one of its first three keywords, and no word is in half of them; False
        if the model answers nothing.
    """
    return group.has_answers and not group.has_fitting_keywords and not group.common_words


def deduplicate_names(names: Sequence[str], words: Sequence[Sequence[str]], used_names: Sequence[str] = ()) -> list[str]:
    """Make equal names distinct, ignoring case.

    Args:
        names: k names.
        words: Keywords of each group, k lists.
        used_names: Names that other groups have already.

    Returns:
        k names that differ from each other and from the used ones: the first of equal ones keeps its name, each later one gets
        the first of its keywords that sets it apart, else a number.
    """
    folded_names = {name.removesuffix(MIXED_SUFFIX).casefold() for name in used_names}
    distinct_names: list[str] = []
    for name, keywords in zip(names, words, strict=True):
        stem = name.removesuffix(MIXED_SUFFIX)
        longer_names = (f"{stem}, {word}" for word in keywords if word not in WORD.findall(stem.lower()))
        numbered_names = (f"{stem} {number}" for number in range(2, len(folded_names) + 3))
        new_stem = next(each for each in (stem, *longer_names, *numbered_names) if each.casefold() not in folded_names)
        folded_names.add(new_stem.casefold())
        distinct_names.append(new_stem + name[len(stem) :])
    return distinct_names


def deduplicate_group_names(results: Sequence[Result]) -> list[Result]:
    """Rename groups of groupings that are shown side by side, so that no name comes twice among them.

    Args:
        results: The groupings.

    Returns:
        The groupings; those whose names do not change are the same objects.
    """
    used_names: list[str] = []
    renamed_results = []
    for result in results:
        names = deduplicate_names(result.names, result.keywords, used_names)
        renamed_results.append(result if names == result.names else replace(result, titles=names))
        used_names += names
    return renamed_results
