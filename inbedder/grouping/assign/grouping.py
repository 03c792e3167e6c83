"""Saved groupings, which assign new texts to the groups of earlier texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer, check_vectors
from inbedder.embedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.assign.answer_agreement import MAX_DISTANCE_QUANTILE, find_agreeing_answers
from inbedder.grouping.assign.assignment import MIN_TYPICALITY, Assignment
from inbedder.grouping.assign.new_groups import Batch, describe_new_groups
from inbedder.grouping.clustering import cluster
from inbedder.grouping.partition.group_distances import find_nearest_centres, find_new_groups, measure_typicality
from inbedder.grouping.prepare.apart_from import remove_directions
from inbedder.grouping.stored.saved_files import lock_grouping, read_grouping_files, write_locked
from inbedder.grouping.stored.stored_grouping import StoredGrouping
from inbedder.grouping.stored.stored_groups import Route, name_parts
from inbedder.prompting.templates import check_texts
from inbedder.vectors.vectors import Labels, Vectors, normalize_vectors

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from inbedder.grouping.grouped_texts import GroupedTexts

SAME_TEXT_DISTANCE = 0.02
"""Maximum distance of two vectors of one text, which differ by rounding."""


class AssignKwargs(TypedDict, total=False):
    """The keyword arguments of ``Grouping.assign``."""

    embeddings: Vectors | None
    batch_size: int
    show_progress_bar: bool | None


class _TextPlaces(NamedTuple):
    """Where n texts belong."""

    labels: Labels
    distances: Vectors
    typicality: Vectors
    answers: list[str]
    fits: NDArray[np.bool_]
    levels: Labels
    """Level whose centres decided the group of each text."""


@dataclass(eq=False, repr=False)
class Grouping(StoredGrouping):
    """A grouping that assigns new texts. ``ClusterResult.save`` writes one and ``Grouping.load`` reads it.

    Example:
        >>> import tempfile
        >>> from inbedder import Grouping, cluster
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> folder = tempfile.mkdtemp()
        >>> cluster(texts, "What is it about?", k=2).save(folder)
        >>> Grouping.load(folder).assign(["I love horses"]).labels.shape
        (1,)
    """

    load_options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for loading the model at its first use, such as cache, device and dtype."""
    _embedder: InBedder | None = field(default=None, init=False)

    @classmethod
    def of(cls, result: GroupedTexts, model: InBedder | None = None) -> Self:
        """Make a grouping that assigns new texts.

        Args:
            result: The grouping of a corpus.
            model: The model that made it; None loads it at its first use.

        Returns:
            The grouping; texts that fit no group form none.

        Raises:
            InputError: If the result does not name the model of its vectors, or has no groups.
        """
        grouping = super().of(result)
        grouping._embedder = model
        return grouping

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: InBedder | str | None = None, **load_options: Any) -> Self:
        """Load a saved grouping.

        Args:
            folder: Folder of the saved grouping.
            model: The grouping's model, if it is loaded already, or its new name or folder; None loads it by the saved name at
                its first use.
            **load_options: Keyword arguments of ``InBedder``, such as cache and device. Options that would change vectors are
                rejected.

        Returns:
            The grouping.

        Raises:
            InputError: If the folder holds no grouping, the grouping is damaged, or the model is another one.
            ModelError: If the model cannot be loaded.
        """
        grouping = cls._read(folder)
        grouping.load_options = load_options
        if model is not None:
            grouping._embedder = grouping.provenance.load_model(model, **load_options)
        return grouping

    @classmethod
    @contextmanager
    def edit(cls, folder: str | os.PathLike[str], model: InBedder | str | None = None, **load_options: Any) -> Iterator[Self]:
        """Load a saved grouping, and save it again when the block ends. Other processes that save there wait meanwhile.

        Args:
            folder: Folder of the saved grouping.
            model: As for ``load``.
            **load_options: As for ``load``.

        Yields:
            The grouping. It is not saved when the block raises.

        Raises:
            InputError: If the folder holds no grouping that can be loaded, or another process does not finish saving there.

        Example:
            >>> import tempfile
            >>> from inbedder import Grouping, cluster
            >>> folder = tempfile.mkdtemp()
            >>> cluster(["I love cats", "The parcel is late"], "What is it about?", k=2).save(folder)
            >>> with Grouping.edit(folder) as grouping:
            ...     grouping.rename({0: "Animals", 1: "Parcels"})
            >>> Grouping.load(folder).names
            ['Animals', 'Parcels']
        """
        read_grouping_files(folder, ())  # rejects a folder without a grouping before the lock makes one
        with lock_grouping(folder) as root:
            grouping = cls.load(root, model, **load_options)
            yield grouping
            grouping._saved = root.resolve(), write_locked(root, *grouping._serialize())

    @property
    def model(self) -> InBedder:
        """The model, loaded at its first use."""
        if self._embedder is None:
            self._embedder = self.provenance.load_model(**self.load_options)
        return self._embedder

    def move(self, texts: Sequence[str], to: int, *, batch_size: int = 32) -> int:
        """Move texts to another group. Texts like them will be assigned to it, too.

        Args:
            texts: Texts of the grouping, at least one.
            to: Number of the group, from 0.
            batch_size: Batch size.

        Returns:
            Number of the texts that were in another group.

        Raises:
            InputError: If there is no text or no such group.
        """
        to = check_integer("to", to, 0, len(self.groups) - 1)
        batch = self._embed_batch(texts, batch_size=batch_size)
        text_places = self._find_places(batch)
        changed_count = int((text_places.labels != to).sum())
        for label in text_places.labels.tolist():
            self.groups[label] = replace(self.groups[label], size=max(self.groups[label].size - 1, 0))
        self.groups[to] = replace(self.groups[to], size=self.groups[to].size + len(batch.texts))
        while batch.texts:  # texts that their common centre does not move get another one, at last one each
            parts = [*zip(text_places.levels.tolist(), text_places.labels.tolist(), strict=True)]
            self._add_centres(batch, parts, to)
            text_places = self._find_places(batch)
            missed_rows = np.flatnonzero(text_places.labels != to)
            if len(missed_rows) == len(batch.texts):
                for row, (level, _) in enumerate(parts):
                    vectors = self._read_level(batch, level, np.array([row])).vectors
                    self._redirect_centres(level, vectors[0], to)
                    self._add_centre(Route(level, to), vectors)
                break
            batch = self._read_level(batch, 0, missed_rows)
            text_places = self._find_places(batch)
        return changed_count

    def _add_centres(self, batch: Batch, parts: Sequence[tuple[int, int]], to: int) -> None:
        """Add a centre of a group for each part of the texts, which are the level and the number of the part of each text."""
        for level, number in dict.fromkeys(parts):
            rows = np.array([row for row, part in enumerate(parts) if part == (level, number)])
            self._add_centre(Route(level, to), self._read_level(batch, level, rows).vectors)

    def _redirect_centres(self, level: int, vector: Vectors, to: int) -> None:
        """Redirect the centres that a text got when it was moved before; each group keeps one."""
        for number in np.flatnonzero(np.linalg.norm(self.centres - vector, axis=1) < SAME_TEXT_DISTANCE).tolist():
            route = self.routes[number]
            if route.level == level and sum(each.target == route.target for each in self.routes) > 1:
                self.routes[number] = Route(level, to)

    def split(self, number: int, instruction: str, texts: Sequence[str], k: int | str = "auto", *, batch_size: int = 32) -> int:
        """Split a group by another question. New texts of the group are then asked that question, too.

        Args:
            number: Number of the group, from 0. The first new group takes its number; the others come last.
            instruction: The question.
            texts: The texts of the grouping, or others like them.
            k: Number of new groups, or "auto".
            batch_size: Batch size.

        Returns:
            Number of the texts that are in the group. The new groups count only these.

        Raises:
            InputError: If there is no such group, it has fewer than two of the texts, or k is out of range.
        """
        number = check_integer("group", number, 0, len(self.groups) - 1)
        batch = self._embed_batch(texts, batch_size=batch_size)
        members = [batch.texts[row] for row in np.flatnonzero(self._find_places(batch).labels == number)]
        if len(members) < 2:
            raise InputError(f"{len(members)} of the texts are in group {number + 1}. Give the texts of the grouping.")
        options: Any = {"namer": self.provenance.options.namer, "exact": self.provenance.options.exact}
        result = cluster(members, instruction, self.model, k, batch_size=batch_size, **options)
        parts = StoredGrouping.of(result)
        level = 1 + len(self.split_questions)
        numbers = [number, *range(len(self.groups), len(self.groups) + len(parts.groups) - 1)]
        new_names = name_parts(self.groups[number].name, parts.names)
        new_groups = [replace(group, name=name) for group, name in zip(parts.groups, new_names, strict=True)]
        self.routes = [Route(route.level, -level) if route.target == number else route for route in self.routes]
        self.groups = [*self.groups[:number], new_groups[0], *self.groups[number + 1 :], *new_groups[1:]]
        self.labels = np.concatenate([self.labels, parts.labels + len(self.centres)])
        self.distances = np.concatenate([self.distances, parts.distances])
        self.centres = np.concatenate([self.centres, parts.centres])
        self.routes += [Route(level, numbers[route.target]) for route in parts.routes]
        self.split_questions = [*self.split_questions, instruction]
        return len(members)

    def assign(
        self,
        texts: Sequence[str],
        *,
        embeddings: Vectors | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> Assignment:
        """Assign texts to the groups.

        Args:
            texts: n texts, at least one.
            embeddings: Vectors of the texts under the instruction, shape (n, d), if you already have them.
            batch_size: Batch size.
            show_progress_bar: None shows a progress bar for long work in a terminal.

        Returns:
            Group, distance, typicality and answer of each text.

        Raises:
            InputError: If there is no text, or the model is no longer the one that made the grouping.
        """
        return self._assign_batch(
            self._embed_batch(texts, embeddings=embeddings, batch_size=batch_size, show_progress_bar=show_progress_bar)
        )

    def update(self, texts: Sequence[str], **options: Unpack[AssignKwargs]) -> Assignment:
        """Assign texts to the groups, and add groups of texts that fit none.

        A new group has at least ten texts, is as tight as the stored groups, and gets the next number. The other groups do not
        change. Call ``save`` to store the new groups.

        Args:
            texts: n texts, at least one.
            **options: Keyword arguments of ``assign``.

        Returns:
            Group, distance, typicality and answer of each text, with the new groups.

        Raises:
            InputError: If there is no text, or the model is no longer the one that made the grouping.
        """
        batch = self._embed_batch(texts, **options)
        assignment = self._assign_batch(batch)
        unfit_rows = np.flatnonzero(~assignment.fits)
        is_first = np.array([route.level == 0 for route in self.routes])[self.labels]
        new_groups = find_new_groups(batch.vectors[unfit_rows], self.labels[is_first], self.distances[is_first])
        if clusters := [unfit_rows[rows] for rows in new_groups]:
            first = len(self.groups)
            self.groups = [*self.groups, *describe_new_groups(self, clusters, batch)]
            for number, rows in enumerate(clusters, first):
                self._add_centre(Route(0, number), batch.vectors[rows])
            assignment = self._assign_batch(batch)
        return assignment

    def _embed_batch(self, texts: Sequence[str], *, embeddings: Vectors | None = None, **run_options: Any) -> Batch:
        index = texts.index if hasattr(texts, "iloc") else None
        texts = check_texts(texts, None)[0]
        if not texts:
            raise InputError("There is no text to assign.")
        if embeddings is None:
            vectors = self.provenance.encode(self.model, texts, **run_options)
        else:
            vectors = normalize_vectors(check_vectors("embeddings", embeddings, texts))
        if vectors.shape[1] != self.centres.shape[1]:
            raise InputError(f"The groups have vectors of {self.centres.shape[1]} dimensions, but these have {vectors.shape[1]}.")
        if self.removed_directions is not None:
            vectors = remove_directions(vectors, self.removed_directions)
        return Batch(texts, vectors, self.provenance.answer(self.model, texts, **run_options), index)

    def _assign_batch(self, batch: Batch) -> Assignment:
        labels, distances, typicality, answers, fits, levels = self._find_places(batch)
        questions_of_levels = [self.question, *self.split_questions]
        questions = [questions_of_levels[level] for level in levels.tolist()] if self.split_questions else None
        return Assignment(batch.texts, labels, distances, typicality, answers, fits, questions, self.names, batch.index)

    def _find_places(self, batch: Batch) -> _TextPlaces:
        """Find the group of each text: that of the nearest centre, or of the nearest one of the level that it leads to."""
        count = len(batch.texts)
        (labels, levels), (distances, typicality) = np.zeros((2, count), dtype=np.int64), np.zeros((2, count), dtype=np.float32)
        fits = np.ones(count, dtype=np.bool_)
        text_places = _TextPlaces(labels, distances, typicality, [*batch.answers], fits, levels)
        pending = {0: np.arange(count)}
        for level in range(1 + len(self.split_questions)):
            rows = pending.get(level, np.arange(0))
            numbers = np.array([number for number, route in enumerate(self.routes) if route.level == level])
            if not len(rows):
                continue
            part = self._read_level(batch, level, rows)
            nearest, text_places.distances[rows] = find_nearest_centres(part.vectors, self.centres[numbers])
            stored_distances = self.distances[np.isin(self.labels, numbers)]
            text_places.typicality[rows] = measure_typicality(text_places.distances[rows], stored_distances)
            text_places.labels[rows] = targets = np.array([self.routes[number].target for number in numbers])[nearest]
            text_places.levels[rows] = level
            for row, answer in zip(rows.tolist(), part.answers, strict=True):
                text_places.answers[row] = answer
            is_near = text_places.distances[rows] <= np.quantile(stored_distances, MAX_DISTANCE_QUANTILE)
            agrees = find_agreeing_answers(part.answers, targets, self.groups)
            text_places.fits[rows] &= (text_places.typicality[rows] >= MIN_TYPICALITY) | (is_near & agrees)
            for target in np.unique(targets[targets < 0]).tolist():
                pending[-target] = np.union1d(pending.get(-target, np.arange(0)), rows[targets == target])
        return text_places

    def _read_level(self, batch: Batch, level: int, rows: NDArray[np.intp]) -> Batch:
        """Read some texts under the question of a level."""
        texts = [batch.texts[row] for row in rows]
        if not level:
            return Batch(texts, batch.vectors[rows], [batch.answers[row] for row in rows], None)
        provenance = replace(self.provenance, instruction=self.split_questions[level - 1])
        vectors = provenance.encode(self.model, texts, show_progress_bar=False)
        return Batch(texts, vectors, provenance.answer(self.model, texts, show_progress_bar=False), None)
