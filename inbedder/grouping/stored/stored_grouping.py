"""A grouping as it is saved: its groups, the centres that new texts are compared with, and the model that made it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer
from inbedder.errors import InputError, format_value
from inbedder.grouping.describe.loose_groups import explain_loose_group
from inbedder.grouping.grouped_texts import NO_INSTRUCTION
from inbedder.grouping.partition.group_distances import measure_member_distances
from inbedder.grouping.provenance import Provenance
from inbedder.grouping.stored.level_centres import find_centres
from inbedder.grouping.stored.saved_files import HASH, make_damage_error, read_grouping_files, write_grouping_files
from inbedder.grouping.stored.stored_groups import Route, StoredGroup, check_new_names, count_answers, merge_stored_groups
from inbedder.io.html_tables import render_html_table
from inbedder.prompting.templates import check_strings
from inbedder.runtime.user_paths import expand_path
from inbedder.vectors.vectors import Labels, Vectors

if TYPE_CHECKING:
    from typing_extensions import Self

    from inbedder.grouping.grouped_texts import GroupedTexts

ARRAYS = ("centres", "labels", "distances", "removed")
"""Names of the saved arrays."""


@dataclass(eq=False, repr=False)
class StoredGrouping:
    """A grouping without its texts, as data. ``Grouping`` assigns new texts to it."""

    provenance: Provenance
    """Model, settings, instruction and namer."""
    groups: list[StoredGroup]
    """k groups."""
    centres: Vectors
    """Means of the vectors of length 1, float32, shape (c, d): one per group, and several for merged groups and moved texts."""
    labels: Labels
    """Centre of each stored distance, int64, shape (m,)."""
    distances: Vectors
    """Distance of each encoded text to the mean of the other texts of its centre, float32, shape (m,)."""
    removed_directions: Vectors | None = None
    """Directions that are removed from vectors (``apart_from``), float32, shape (r, d); None if none are."""
    routes: list[Route] = field(default_factory=list)
    """Where the texts near each centre belong, c routes; empty for one centre per group."""
    split_questions: list[str] = field(default_factory=list)
    """Questions of levels 1, 2, ..., which split groups."""
    _saved: tuple[Path, str] | None = field(default=None, init=False)
    """The folder that it was loaded from or last saved in, and the version there."""

    def __post_init__(self) -> None:
        self.centres = np.asarray(self.centres, dtype=np.float32)
        self.routes = self.routes or [Route(0, number) for number in range(len(self.groups))]

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name!r}: {group.size}" for group in self.groups)
        return f"{type(self).__name__}({self.question!r}, {self.provenance.spec.model!r}, {{{groups}}})"

    def _repr_html_(self) -> str:
        rows = [[i, group.name, group.size, group.examples[:2]] for i, group in enumerate(self.groups, 1)]
        return render_html_table(f"{self.question} – saved groups", ["group", "name", "texts", "examples"], rows)

    @property
    def question(self) -> str:
        """The question in one line."""
        instruction = self.provenance.instruction
        return " / ".join(instruction) if isinstance(instruction, list) else instruction or NO_INSTRUCTION

    @property
    def names(self) -> list[str]:
        """Name of each group, k strings."""
        return [group.name for group in self.groups]

    @classmethod
    def of(cls, result: GroupedTexts) -> Self:
        """Make the stored form of a grouping.

        Args:
            result: The grouping of a corpus.

        Returns:
            The grouping; texts that fit no group form none.

        Raises:
            InputError: If the result does not name the model of its vectors, or has no groups.
        """
        if result.provenance is None:
            raise InputError("This grouping does not name the model that made it. Make it with cluster().")
        count = len(result.keywords) - (result.left_out is not None)
        if not count:
            reason = f"Under {format_value(result.instruction)} no text fits a group"
            raise InputError(f"{reason}, so there is nothing to save. Group with a smaller min_size or another method.")
        groups = []
        for number, name in enumerate(result.names[:count]):
            members = np.flatnonzero(result.labels == number)
            answers = count_answers(result.answers[row] for row in members.tolist())
            words, examples = result.keywords[number], result.examples[number]
            is_loose = bool(explain_loose_group(result, number))
            groups.append(StoredGroup(name, len(members), words, examples, answers, loose=is_loose))
        levels = find_centres(result)
        centres = np.concatenate([level.centres for level in levels])
        offsets = np.cumsum([0, *(len(level.centres) for level in levels[:-1])])
        labels = np.concatenate([level.labels + offset for level, offset in zip(levels, offsets, strict=True)])
        distances = np.concatenate([level.distances for level in levels])
        routes = [Route(number, target) for number, level in enumerate(levels) for target in level.targets]
        questions = [split.instruction for split in result.splits]
        return cls(result.provenance, groups, centres, labels, distances, result.removed_directions, routes, questions)

    @classmethod
    def _read(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a saved grouping without loading its model."""
        metadata, (centres, labels, distances, removed) = read_grouping_files(folder, ARRAYS)
        try:
            groups = [StoredGroup(**group) for group in metadata["groups"]]
            provenance = Provenance.from_dict(metadata["provenance"])
            questions = check_strings("questions", metadata["questions"])
            routes = Route.parse(metadata["routes"], 1 + len(questions))
            grouping = cls(provenance, groups, centres, labels, distances, removed if len(removed) else None, routes, questions)
            grouping._saved = expand_path(folder).resolve(), metadata[HASH]
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise make_damage_error(folder, f"its settings are incomplete ({format_value(error)})") from error
        if reason := grouping._find_contradiction():
            raise make_damage_error(folder, reason)
        return grouping

    def _find_contradiction(self) -> str | None:
        """Find how arrays and groups contradict each other; None if they do not."""
        count = len(self.groups)
        targets = {route.target for route in self.routes if route.target >= 0}
        if self.centres.ndim != 2 or len(self.centres) != len(self.routes) or targets != set(range(count)) or not count:
            return f"{count} groups but centres of shape {self.centres.shape}"
        if {route.level for route in self.routes} != set(range(1 + len(self.split_questions))):
            return f"{len(self.split_questions)} split groups but other levels"
        if self.labels.ndim != 1 or self.labels.shape != self.distances.shape:
            return f"labels of shape {self.labels.shape} but distances of shape {self.distances.shape}"
        if self.labels.dtype.kind != "i" or self.distances.dtype.kind != "f":
            return f"labels of type {self.labels.dtype} and distances of type {self.distances.dtype}"
        if not (np.isfinite(self.centres).all() and np.isfinite(self.distances).all()):
            return "its arrays contain NaN or infinite numbers"
        if self.removed_directions is not None and self.removed_directions.shape[1:] != self.centres.shape[1:]:
            return f"removed directions of shape {self.removed_directions.shape}"
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.centres):
            return f"labels beyond its {len(self.centres)} centres"
        return None if all(group.is_valid() for group in self.groups) else "a group has values of wrong types or below 0"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the grouping as JSON and npy files, atomically.

        Args:
            folder: A new or empty folder, or one with a saved grouping, which is replaced. If this grouping was loaded from it,
                no other process may have saved there since (``edit`` makes loading, changing and saving one step).

        Raises:
            InputError: If the folder cannot be used, or another process saved there since this grouping was loaded.
        """
        root = expand_path(folder).resolve()
        replaces = self._saved[1] if self._saved is not None and self._saved[0] == root else None
        self._saved = root, write_grouping_files(folder, *self._serialize(), replaces)

    def _serialize(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Make the content of ``grouping.json`` and the arrays."""
        metadata: dict[str, Any] = {"provenance": self.provenance.to_dict(), "groups": [asdict(group) for group in self.groups]}
        metadata |= {"routes": [list(route) for route in self.routes], "questions": self.split_questions}
        no_directions = np.empty((0, self.centres.shape[1]), dtype=np.float32)
        removed = no_directions if self.removed_directions is None else self.removed_directions
        return metadata, dict(zip(ARRAYS, (self.centres, self.labels, self.distances, removed), strict=True))

    def rename(self, names: Mapping[int, str]) -> None:
        """Rename groups. The new names persist when texts are assigned, groups are added or the grouping is saved.

        Args:
            names: New names by number of the group, from 0.

        Raises:
            InputError: If there is no such group, or a name is empty or belongs to another group. Then no group is renamed.
        """
        new_names = {check_integer("group", number, 0, len(self.groups) - 1): name for number, name in names.items()}
        check_new_names(new_names.values(), [group.name for i, group in enumerate(self.groups) if i not in new_names])
        for number, name in new_names.items():
            self.groups[number] = replace(self.groups[number], name=name, by_hand=True)

    def merge(self, numbers: Sequence[int], name: str | None = None) -> int:
        """Merge groups. The merged group keeps the centres of all, so texts that were nearest to one of them still are.

        Args:
            numbers: Numbers of two or more groups, from 0. The merged group has the smallest; later groups move up.
            name: Name of the merged group; None for that of the largest one.

        Returns:
            Number of texts that join the largest of the groups.

        Raises:
            InputError: If there are fewer than two groups or no such group, or the name belongs to another group.
        """
        merged = sorted({check_integer("group", number, 0, len(self.groups) - 1) for number in numbers})
        if len(merged) < 2:
            raise InputError("Give at least two groups to merge.")
        sizes = [self.groups[number].size for number in merged]
        group = merge_stored_groups([self.groups[number] for number in merged], name)
        remaining = [number for number in range(len(self.groups)) if number not in merged[1:]]
        check_new_names([group.name], [self.groups[number].name for number in remaining if number != merged[0]])
        new_numbers = {number: position for position, number in enumerate(remaining)}
        new_numbers |= dict.fromkeys(merged, new_numbers[merged[0]])
        self.routes = [route if route.target < 0 else Route(route.level, new_numbers[route.target]) for route in self.routes]
        self.groups = [group if number == merged[0] else self.groups[number] for number in remaining]
        return sum(sizes) - max(sizes)

    def _add_centre(self, route: Route, vectors: Vectors) -> None:
        """Add the mean of vectors as a centre."""
        centre = vectors.mean(axis=0)
        distances = measure_member_distances(vectors, centre, len(vectors))
        self.labels = np.concatenate([self.labels, np.full(len(vectors), len(self.centres), dtype=np.int64)])
        self.distances = np.concatenate([self.distances, distances])
        self.centres = np.concatenate([self.centres, centre[None]])
        self.routes = [*self.routes, route]
