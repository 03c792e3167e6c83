"""Groups worked on by hand: merged, renamed, split by another question, and texts moved between them.

A result keeps what the edits were made of: the part of each text before groups were merged and texts moved, and the vectors of
each split. From these a saved grouping gets its centres (``level_centres``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_value
from inbedder.grouping.describe.describe_groups import describe_groups
from inbedder.grouping.describe.question_effect import explain_yes_or_no
from inbedder.grouping.grouped_texts import GroupedTexts, Split
from inbedder.grouping.partition.outline import find_branches
from inbedder.grouping.partition.partition import mark_left_out
from inbedder.grouping.stored.stored_groups import check_new_names, name_parts

if TYPE_CHECKING:
    from typing_extensions import Self

    from inbedder.vectors.vectors import Labels


class EditableGroups(GroupedTexts):
    """A corpus in groups that can be merged, renamed and split."""

    def merge(self, numbers: Sequence[int], name: str | None = None) -> Self:
        """Merge groups.

        Args:
            numbers: Numbers of two or more groups, from 0.
            name: Name of the merged group; None for that of the largest one.

        Returns:
            The grouping with the groups renumbered by falling size. Agreement with labels and the stability of the merged group
            are not known.

        Raises:
            InputError: If there are fewer than two groups or no such group, or the name is empty or belongs to another group.

        Example:
            >>> from inbedder import cluster
            >>> result = cluster(["I love cats", "I love dogs", "The parcel is late"], "What is it about?", k=3)
            >>> result.merge([0, 1], "pets").names[0]
            'pets'
        """
        merged = sorted({self._check_group("group", number) for number in numbers})
        if len(merged) < 2:
            raise InputError("Give at least two groups to merge.")
        names = dict(enumerate(self.names))
        if name is not None:
            check_new_names([name], [names[number] for number in names if number not in merged])
            names[merged[0]] = name
        labels = np.where(np.isin(self.labels, merged), merged[0], self.labels)
        return self._rebuild(labels, names, changed={merged[0]})

    def move(self, rows: Sequence[int], to: int) -> Self:
        """Move texts to another group.

        Args:
            rows: Positions of the texts, from 0.
            to: Number of the group, from 0.

        Returns:
            The grouping with the groups renumbered by falling size; a group that lost all its texts is gone. A saved one assigns
            texts like the moved ones to their group.

        Raises:
            InputError: If there is no such text or group, or no text to move.
        """
        to = self._check_group("to", to)
        positions = [check_integer("row", row, 0, len(self.texts) - 1) for row in rows]
        if not positions:
            raise InputError("There is no text to move.")
        labels = self.labels.copy()
        labels[positions] = to
        return self._rebuild(labels, dict(enumerate(self.names)), changed={to, *self.labels[positions].tolist()})

    def rename(self, names: Mapping[int, str]) -> Self:
        """Rename groups.

        Args:
            names: New names by number of the group, from 0.

        Returns:
            The grouping with these names.

        Raises:
            InputError: If there is no such group, or a name is empty or belongs to another group.
        """
        new_names = {self._check_group("group", number): name for number, name in names.items()}
        check_new_names(new_names.values(), [name for number, name in enumerate(self.names) if number not in new_names])
        return replace(self, titles=[new_names.get(number, name) for number, name in enumerate(self.names)])

    def _split_into(self, number: int, rows: Labels, part_result: GroupedTexts) -> Self:
        """Split a group, whose texts are at ``rows``, into those of another question."""
        first_new = len(self.names)
        labels = self.labels.copy()
        labels[rows] = first_new + part_result.labels
        names = dict(enumerate([*self.names, *name_parts(self.names[number], part_result.names)]))
        answers = list(self.answers)
        for row, answer in zip(rows.tolist(), part_result.answers, strict=True):
            answers[row] = answer
        notes = [*self.notes, *explain_yes_or_no(part_result.answers)]
        split = Split(part_result.instruction, rows, part_result.embeddings, part_result.labels)
        stability = {first_new + i: value for i, value in enumerate(part_result.stability or [])}
        return self._rebuild(labels, names, stability=stability, answers=answers, notes=notes, splits=[*self.splits, split])

    def _check_group(self, name: str, number: int) -> int:
        number = check_integer(name, number, 0, len(self.names) - 1)
        if number == self.left_out:
            raise InputError(f"{format_value(self.names[number])} is not a group. Give the number of a group.")
        return number

    def _rebuild(
        self,
        labels: Labels,
        names: Mapping[int, str],
        *,
        changed: frozenset[int] | set[int] = frozenset(),
        stability: Mapping[int, float] | None = None,
        **fields: Any,
    ) -> Self:
        """Renumber groups by falling size and describe them again; the stability of changed groups is not known."""
        numbers, sizes = np.unique(labels, return_counts=True)
        order = numbers[np.lexsort((numbers, -sizes, numbers == (-1 if self.left_out is None else self.left_out)))].tolist()
        rank = {number: position for position, number in enumerate(order)}
        new_labels = np.array([rank[label] for label in labels.tolist()], dtype=np.int64)
        left_out = None if self.left_out is None else rank.get(self.left_out)
        titles, answers = [names[number] for number in order], fields.get("answers", self.answers)
        stability_of = dict(enumerate(self.stability or [])) | dict(stability or {})
        fields |= describe_groups(self.texts, self.embeddings, new_labels, answers, titles)._asdict()
        return replace(
            self,
            labels=new_labels,
            stability=[float("nan") if n in changed else stability_of.get(n, float("nan")) for n in order],
            left_out=left_out,
            parts=self.labels if self.parts is None else self.parts,
            label_agreements={},
            evidence=None,
            branches=find_branches(self.embeddings, mark_left_out(new_labels, left_out)),
            choice=None,
            **fields,
        )
