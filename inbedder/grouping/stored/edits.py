"""Groups worked on by hand: merged, renamed, split by another question, and texts moved between them.

A result keeps what the edits were made of: the part of each text before groups were merged and texts moved, and the vectors of
each split. From these, a saved grouping gets a centre for each part of each group. So a merged group keeps the centres of all its
parts, and moved texts pull texts like them along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_value
from inbedder.grouping.describe.describe_groups import GroupedRows, Result, collect_characteristics
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.partition.group_distances import measure_member_distances
from inbedder.vectors.vectors import normalize_vectors

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.partition.partition import Labels
    from inbedder.vectors.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Split:
    """A group that was split by another question."""

    question: str
    """The question."""
    rows: Labels
    """Positions of the group's m texts, int64."""
    vectors: Vectors
    """Vectors of the texts under the question, float32, shape (m, d)."""
    parts: Labels
    """Part of each text, int64, shape (m,)."""


class LevelCentres(NamedTuple):
    """The centres of one question, for saving."""

    centres: Vectors
    """Means of the vectors of length 1, float32, shape (c, d)."""
    targets: list[int]
    """Group of each centre, or -j if its texts go on to level j."""
    labels: Labels
    """Centre of each distance, int64, shape (m,)."""
    distances: Vectors
    """Distance of each text to the mean of the other texts of its centre, float32, shape (m,)."""


def merge_groups(result: Result, numbers: Sequence[int], name: str | None = None) -> Result:
    """Merge groups.

    Args:
        result: The grouping.
        numbers: Numbers of two or more groups, from 0.
        name: Name of the merged group; None for that of the largest one.

    Returns:
        The grouping with the groups renumbered by falling size.

    Raises:
        InputError: If there are fewer than two groups or no such group, or the name is empty or belongs to another group.
    """
    merged = sorted({_check_group(result, "group", number) for number in numbers})
    if len(merged) < 2:
        raise InputError("Give at least two groups to merge.")
    names = dict(enumerate(result.names))
    if name is not None:
        check_new_names([name], [names[number] for number in names if number not in merged])
        names[merged[0]] = name
    labels = np.where(np.isin(result.labels, merged), merged[0], result.labels)
    return _rebuild(result, labels, names, changed={merged[0]})


def move_texts(result: Result, rows: Sequence[int], to: int) -> Result:
    """Move texts to another group.

    Args:
        result: The grouping of n texts.
        rows: Positions of the texts, from 0.
        to: Number of the group, from 0.

    Returns:
        The grouping with the groups renumbered by falling size; a group that lost all its texts is gone.

    Raises:
        InputError: If there is no such text or group, or no text to move.
    """
    to = _check_group(result, "to", to)
    positions = [check_integer("row", row, 0, len(result.texts) - 1) for row in rows]
    if not positions:
        raise InputError("There is no text to move.")
    labels = result.labels.copy()
    labels[positions] = to
    return _rebuild(result, labels, dict(enumerate(result.names)), changed={to, *result.labels[positions].tolist()})


def rename_groups(result: Result, names: Mapping[int, str]) -> Result:
    """Rename groups.

    Args:
        result: The grouping.
        names: New names by number of the group, from 0.

    Returns:
        The grouping with these names.

    Raises:
        InputError: If there is no such group, or a name is empty or belongs to another group.
    """
    new_names = {_check_group(result, "group", number): name for number, name in names.items()}
    check_new_names(new_names.values(), [name for number, name in enumerate(result.names) if number not in new_names])
    return replace(result, titles=[new_names.get(number, name) for number, name in enumerate(result.names)])


def split_group(result: Result, number: int, part_result: GroupedTexts) -> Result:
    """Split a group into those of another question.

    Args:
        result: The grouping.
        number: Number of the group, from 0.
        part_result: The grouping of the group's texts, in their order, under the other question.

    Returns:
        The grouping with the groups renumbered by falling size.

    Raises:
        InputError: If there is no such group.
    """
    number = _check_group(result, "group", number)
    rows = np.flatnonzero(result.labels == number)
    first_new = len(result.names)
    labels = result.labels.copy()
    labels[rows] = first_new + part_result.labels
    parent = result.names[number]
    names = dict(enumerate(result.names)) | {first_new + i: f"{parent}: {name}" for i, name in enumerate(part_result.names)}
    answers = list(result.answers)
    for row, answer in zip(rows.tolist(), part_result.answers, strict=True):
        answers[row] = answer
    split = Split(part_result.instruction, rows, part_result.embeddings, part_result.labels)
    stability = {first_new + i: value for i, value in enumerate(part_result.stability or [])}
    return _rebuild(result, labels, names, stability=stability, answers=answers, splits=[*result.splits, split])


def find_centres(result: GroupedTexts) -> list[LevelCentres]:
    """Find the centres of a grouping: one for each part of each group, under the question that decides it.

    Args:
        result: The grouping; texts that fit no group have no centre.

    Returns:
        Level 0, the grouping's question, and a level for each split.
    """
    fitting = np.flatnonzero(result.labels != (-1 if result.left_out is None else result.left_out))
    parts = result.labels if result.parts is None else result.parts
    sample = getattr(result.embeddings, "sample", None)
    levels = [_find_level(result, 0, fitting, result.embeddings[fitting], parts[fitting], sample)]
    for number, split in enumerate(result.splits, 1):
        levels.append(_find_level(result, number, split.rows, split.vectors, split.parts, None))
    return levels


def _find_level(result: GroupedTexts, level: int, rows: Labels, vectors: Vectors, parts: Labels, sample: Any) -> LevelCentres:
    """Find the centres of some rows: the means of those with the same part and the same target."""
    targets = result.labels[rows].copy()
    for number in range(len(result.splits), level, -1):  # the first later split of a row is its target
        targets[np.isin(rows, result.splits[number - 1].rows)] = -number
    pairs, pair_of = np.unique(np.stack([targets, parts], axis=1), axis=0, return_inverse=True)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    centres, labels, distances = [], [], []
    for position, pair in enumerate(order):
        members = np.flatnonzero(pair_of.ravel() == pair)
        directions = np.asarray(normalize_vectors(vectors[members]))
        centres.append(directions.mean(axis=0))
        if sample is not None:  # mapped vectors lie closer together than encoded ones
            directions = directions[np.isin(rows[members], sample)]
        distances.append(measure_member_distances(directions, centres[-1], len(members)))
        labels.append(np.full(len(distances[-1]), position, dtype=np.int64))
    return LevelCentres(np.stack(centres), pairs[order, 0].tolist(), np.concatenate(labels), np.concatenate(distances))


def _check_group(result: GroupedTexts, name: str, number: int) -> int:
    number = check_integer(name, number, 0, len(result.names) - 1)
    if number == result.left_out:
        raise InputError(f"{format_value(result.names[number])} is not a group. Give the number of a group.")
    return number


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


def _rebuild(
    result: Result,
    labels: Labels,
    names: Mapping[int, str],
    *,
    changed: frozenset[int] | set[int] = frozenset(),
    stability: Mapping[int, float] | None = None,
    **fields: Any,
) -> Result:
    """Renumber groups by falling size and describe them again; the stability of changed groups is not known."""
    numbers, sizes = np.unique(labels, return_counts=True)
    order = numbers[np.lexsort((numbers, -sizes, numbers == (-1 if result.left_out is None else result.left_out)))].tolist()
    rank = {number: position for position, number in enumerate(order)}
    new_labels = np.array([rank[label] for label in labels.tolist()], dtype=np.int64)
    answers: list[str] = fields.get("answers", result.answers)
    rows = GroupedRows(result.texts, result.embeddings, new_labels, answers)
    contents, examples = collect_characteristics(rows, answered=any(answers))
    stability_of = dict(enumerate(result.stability or [])) | dict(stability or {})
    fields |= {"stability": [float("nan") if n in changed else stability_of.get(n, float("nan")) for n in order]}
    fields |= {"titles": [names[number] for number in order], "labels": new_labels}
    fields |= {"left_out": None if result.left_out is None else rank.get(result.left_out)}
    fields |= {"parts": result.labels if result.parts is None else result.parts}
    return replace(
        result,
        keywords=[group.keywords for group in contents],
        examples=examples,
        mixed=[is_mixed(group) for group in contents],
        label_agreements={},
        evidence=None,
        branches=None,
        choice=None,
        **fields,
    )
