"""Saved groupings, which assign new texts to the groups of earlier texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer, check_vectors
from inbedder.embedder import InBedder
from inbedder.errors import InputError, format_value
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.grouping.describe.explain import find_central_texts, find_keywords
from inbedder.grouping.describe.naming import deduplicate_names, find_namer, name_groups
from inbedder.grouping.grouped_texts import GroupedTexts
from inbedder.grouping.make_groups import make_groups
from inbedder.grouping.namers import GroupContents
from inbedder.grouping.partition.apart_from import remove_directions
from inbedder.grouping.partition.group_distances import (
    find_nearest_centres,
    find_new_groups,
    measure_member_distances,
    measure_typicality,
)
from inbedder.grouping.partition.partition import Labels
from inbedder.grouping.provenance import NO_INSTRUCTION, Provenance
from inbedder.grouping.stored.assignment import Assignment
from inbedder.grouping.stored.edits import check_new_names, find_centres
from inbedder.grouping.stored.saved_files import (
    HASH,
    lock_grouping,
    make_damage_error,
    read_grouping_files,
    write_grouping_files,
    write_locked,
)
from inbedder.grouping.stored.stored_groups import EXAMPLES_PER_GROUP, Route, StoredGroup, count_answers, merge_stored_groups
from inbedder.io.html_tables import render_html_table
from inbedder.prompting.templates import check_strings, check_texts
from inbedder.runtime.user_paths import expand_path
from inbedder.vectors.vectors import Vectors, normalize_vectors

ARRAYS = ("centres", "labels", "distances", "removed")
"""Names of the saved arrays."""


class _TextPlaces(NamedTuple):
    """Where n texts belong."""

    labels: Labels
    distances: Vectors
    typicality: Vectors
    answers: list[str]
    levels: Labels
    """Level whose centres decided the group of each text."""


class _Batch(NamedTuple):
    """New texts with their vectors of length 1, answers and pandas index."""

    texts: list[str]
    vectors: Vectors
    answers: list[str]
    index: Any


@dataclass(eq=False, repr=False)
class Grouping:
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
    load_options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for loading the model at its first use, such as cache, device and dtype."""
    _embedder: InBedder | None = field(default=None, init=False)
    _saved: tuple[Path, str] | None = field(default=None, init=False)
    """The folder that it was loaded from or last saved in, and the version there."""

    def __post_init__(self) -> None:
        self.centres = np.asarray(self.centres, dtype=np.float32)
        self.routes = self.routes or [Route(0, number) for number in range(len(self.groups))]

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name!r}: {group.size}" for group in self.groups)
        return f"Grouping({self.question!r}, {self.provenance.spec.model!r}, {{{groups}}})"

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
    def of(cls, result: GroupedTexts, model: InBedder | None = None) -> Grouping:
        """Make a grouping that assigns new texts.

        Args:
            result: The grouping of a corpus.
            model: The model that made it; None loads it at its first use.

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
            groups.append(StoredGroup(name, len(members), result.keywords[number], result.examples[number], answers))
        levels = find_centres(result)
        centres = np.concatenate([level.centres for level in levels])
        offsets = np.cumsum([0, *(len(level.centres) for level in levels[:-1])])
        labels = np.concatenate([level.labels + offset for level, offset in zip(levels, offsets, strict=True)])
        distances = np.concatenate([level.distances for level in levels])
        routes = [Route(number, target) for number, level in enumerate(levels) for target in level.targets]
        questions = [split.question for split in result.splits]
        grouping = cls(result.provenance, groups, centres, labels, distances, result.removed_directions, routes, questions)
        grouping._embedder = model
        return grouping

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: InBedder | str | None = None, **load_options: Any) -> Grouping:
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
        metadata, (centres, labels, distances, removed) = read_grouping_files(folder, ARRAYS)
        try:
            groups = [StoredGroup(**group) for group in metadata["groups"]]
            provenance, questions = (
                Provenance.from_dict(metadata["provenance"]),
                check_strings("questions", metadata["questions"]),
            )
            routes = Route.parse(metadata["routes"], 1 + len(questions))
            directions = removed if len(removed) else None
            grouping = cls(provenance, groups, centres, labels, distances, directions, routes, questions, load_options)
            grouping._saved = expand_path(folder).resolve(), metadata[HASH]
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise make_damage_error(folder, f"its settings are incomplete ({format_value(error)})") from error
        if reason := grouping._find_contradiction():
            raise make_damage_error(folder, reason)
        if isinstance(model, InBedder):
            grouping.provenance.check(model)
            grouping._embedder = model
        elif model is not None:
            grouping._embedder = grouping.provenance.load_model(model, **load_options)
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

    @classmethod
    @contextmanager
    def edit(cls, folder: str | os.PathLike[str], model: InBedder | str | None = None, **load_options: Any) -> Iterator[Grouping]:
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

    @property
    def model(self) -> InBedder:
        """The model, loaded at its first use."""
        if self._embedder is None:
            self._embedder = self.provenance.load_model(**self.load_options)
        return self._embedder

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

    def merge(self, numbers: Sequence[int], name: str | None = None) -> None:
        """Merge groups. The merged group keeps the centres of all, so texts that were nearest to one of them still are.

        Args:
            numbers: Numbers of two or more groups, from 0. The merged group has the smallest; later groups move up.
            name: Name of the merged group; None for that of the largest one.

        Raises:
            InputError: If there are fewer than two groups or no such group, or the name belongs to another group.
        """
        merged = sorted({check_integer("group", number, 0, len(self.groups) - 1) for number in numbers})
        if len(merged) < 2:
            raise InputError("Give at least two groups to merge.")
        group = merge_stored_groups([self.groups[number] for number in merged], name)
        remaining = [number for number in range(len(self.groups)) if number not in merged[1:]]
        check_new_names([group.name], [self.groups[number].name for number in remaining if number != merged[0]])
        new_numbers = {number: position for position, number in enumerate(remaining)}
        new_numbers |= dict.fromkeys(merged, new_numbers[merged[0]])
        self.routes = [route if route.target < 0 else Route(route.level, new_numbers[route.target]) for route in self.routes]
        self.groups = [group if number == merged[0] else self.groups[number] for number in remaining]

    def move(self, texts: Sequence[str], to: int, *, batch_size: int = 32) -> None:
        """Move texts to another group. Texts like them will be assigned to it, too.

        Args:
            texts: Texts of the grouping, at least one.
            to: Number of the group, from 0.
            batch_size: Batch size.

        Raises:
            InputError: If there is no text or no such group.
        """
        to = check_integer("to", to, 0, len(self.groups) - 1)
        batch = self._embed_batch(texts, None, batch_size, None)
        text_places = self._find_places(batch)
        for level, label in {*zip(text_places.levels.tolist(), text_places.labels.tolist(), strict=True)}:
            rows = np.flatnonzero((text_places.levels == level) & (text_places.labels == label))
            self._add_centre(Route(level, to), self._read_level(batch, level, rows).vectors)
        for label in text_places.labels.tolist():
            self.groups[label] = replace(self.groups[label], size=max(self.groups[label].size - 1, 0))
        self.groups[to] = replace(self.groups[to], size=self.groups[to].size + len(batch.texts))

    def split(self, number: int, question: str, texts: Sequence[str], k: int | str = "auto", *, batch_size: int = 32) -> None:
        """Split a group by another question. New texts of the group are then asked that question, too.

        Args:
            number: Number of the group, from 0. The first new group takes its number; the others come last.
            question: The question.
            texts: The texts of the grouping, or others like them.
            k: Number of new groups, or "auto".
            batch_size: Batch size.

        Raises:
            InputError: If there is no such group, it has fewer than two of the texts, or k is out of range.
        """
        number = check_integer("group", number, 0, len(self.groups) - 1)
        batch = self._embed_batch(texts, None, batch_size, None)
        members = [batch.texts[row] for row in np.flatnonzero(self._find_places(batch).labels == number)]
        if len(members) < 2:
            raise InputError(f"{len(members)} of the texts are in group {number + 1}. Give the texts of the grouping.")
        result = make_groups(GroupedTexts, members, question, self.model, ClusterOptions(k=k), batch_size=batch_size)
        parts = Grouping.of(result, self.model)
        level = 1 + len(self.split_questions)
        numbers = [number, *range(len(self.groups), len(self.groups) + len(parts.groups) - 1)]
        name = self.groups[number].name
        new_groups = [replace(group, name=f"{name}: {group.name}") for group in parts.groups]
        self.routes = [Route(route.level, -level) if route.target == number else route for route in self.routes]
        self.groups = [*self.groups[:number], new_groups[0], *self.groups[number + 1 :], *new_groups[1:]]
        self.labels = np.concatenate([self.labels, parts.labels + len(self.centres)])
        self.distances = np.concatenate([self.distances, parts.distances])
        self.centres = np.concatenate([self.centres, parts.centres])
        self.routes += [Route(level, numbers[route.target]) for route in parts.routes]
        self.split_questions = [*self.split_questions, question]

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
        return self._assign_batch(self._embed_batch(texts, embeddings, batch_size, show_progress_bar))

    def update(
        self,
        texts: Sequence[str],
        *,
        embeddings: Vectors | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> Assignment:
        """Assign texts to the groups, and add groups of texts that fit none.

        A new group has at least ten texts, is as tight as the stored groups, and gets the next number. The other groups do not
        change. Call ``save`` to store the new groups.

        Args:
            texts: n texts, at least one.
            embeddings: Vectors of the texts under the instruction, shape (n, d), if you already have them.
            batch_size: Batch size.
            show_progress_bar: None shows a progress bar for long work in a terminal.

        Returns:
            Group, distance, typicality and answer of each text, with the new groups.

        Raises:
            InputError: If there is no text, or the model is no longer the one that made the grouping.
        """
        batch = self._embed_batch(texts, embeddings, batch_size, show_progress_bar)
        assignment = self._assign_batch(batch)
        unfit_rows = np.flatnonzero(~assignment.fits)
        is_first = np.array([route.level == 0 for route in self.routes])[self.labels]
        new_groups = find_new_groups(batch.vectors[unfit_rows], self.labels[is_first], self.distances[is_first])
        clusters = [unfit_rows[rows] for rows in new_groups]
        if clusters:
            self._add_groups(clusters, batch)
            assignment = self._assign_batch(batch)
        return assignment

    def _embed_batch(
        self, texts: Sequence[str], embeddings: Vectors | None, batch_size: int, show_progress_bar: bool | None
    ) -> _Batch:
        index = texts.index if hasattr(texts, "iloc") else None
        texts = check_texts(texts, None)[0]
        if not texts:
            raise InputError("There is no text to assign.")
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        if embeddings is None:
            vectors = self.provenance.encode(self.model, texts, **options)
        else:
            vectors = normalize_vectors(check_vectors("embeddings", embeddings, texts))
        if vectors.shape[1] != self.centres.shape[1]:
            width = self.centres.shape[1]
            raise InputError(f"The groups have vectors of {width} dimensions, but these have {vectors.shape[1]}.")
        if self.removed_directions is not None:
            vectors = remove_directions(vectors, self.removed_directions)
        return _Batch(texts, vectors, self.provenance.answer(self.model, texts, **options), index)

    def _assign_batch(self, batch: _Batch) -> Assignment:
        labels, distances, typicality, answers, _ = self._find_places(batch)
        names = [self.groups[label].name for label in labels]
        return Assignment(batch.texts, labels, distances, typicality, answers, names, batch.index)

    def _find_places(self, batch: _Batch) -> _TextPlaces:
        """Find the group of each text: that of the nearest centre, or of the nearest one of the level that it leads to."""
        count = len(batch.texts)
        text_places = _TextPlaces(
            labels=np.zeros(count, dtype=np.int64),
            distances=np.zeros(count, dtype=np.float32),
            typicality=np.zeros(count, dtype=np.float32),
            answers=[*batch.answers],
            levels=np.zeros(count, dtype=np.int64),
        )
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
            for target in np.unique(targets[targets < 0]).tolist():
                pending[-target] = np.union1d(pending.get(-target, np.arange(0)), rows[targets == target])
        return text_places

    def _read_level(self, batch: _Batch, level: int, rows: NDArray[np.intp]) -> _Batch:
        """Read some texts under the question of a level."""
        texts = [batch.texts[row] for row in rows]
        if not level:
            return _Batch(texts, batch.vectors[rows], [batch.answers[row] for row in rows], None)
        provenance = replace(self.provenance, instruction=self.split_questions[level - 1])
        options = {"show_progress_bar": False}
        return _Batch(
            texts, provenance.encode(self.model, texts, **options), provenance.answer(self.model, texts, **options), None
        )

    def _add_groups(self, clusters: list[NDArray[np.intp]], batch: _Batch) -> None:
        """Add groups of new texts with keywords and names that distinguish them from the stored groups."""
        first = len(self.groups)
        members = np.concatenate(clusters)
        labels = np.repeat(np.arange(first, first + len(clusters)), [len(rows) for rows in clusters])
        stored_phrases = [(phrase, number) for number, group in enumerate(self.groups) for phrase in group.list_phrases()]
        new_phrases = batch.answers if any(batch.answers) else batch.texts
        documents = [phrase for phrase, _ in stored_phrases] + [new_phrases[row] for row in members]
        words = find_keywords(documents, np.concatenate([[number for _, number in stored_phrases], labels]).astype(np.int64))
        texts = [batch.texts[row] for row in members]
        examples = find_central_texts(texts, batch.vectors[members], labels - first, EXAMPLES_PER_GROUP)
        names = self._name_clusters(clusters, batch, words)
        for name, rows, group_words, example_rows in zip(names, clusters, words[first:], examples, strict=True):
            name = deduplicate_names([name], [group_words], self.names)[0]
            answers = count_answers(batch.answers[row] for row in rows.tolist())
            self.groups.append(StoredGroup(name, len(rows), group_words, [texts[row] for row in example_rows], answers))
            self._add_centre(Route(0, len(self.groups) - 1), batch.vectors[rows])

    def _add_centre(self, route: Route, vectors: Vectors) -> None:
        """Add the mean of vectors as a centre."""
        centre = vectors.mean(axis=0)
        distances = measure_member_distances(vectors, centre, len(vectors))
        self.labels = np.concatenate([self.labels, np.full(len(vectors), len(self.centres), dtype=np.int64)])
        self.distances = np.concatenate([self.distances, distances])
        self.centres = np.concatenate([self.centres, centre[None]])
        self.routes = [*self.routes, route]

    def _name_clusters(self, clusters: list[NDArray[np.intp]], batch: _Batch, words: list[list[str]]) -> list[str]:
        """Name new groups with the namer of the stored groups, which it sees too."""
        contents = []
        centres = [
            self.centres[[route.target == number for route in self.routes]].mean(axis=0) for number in range(len(self.groups))
        ]
        for group, centre, group_words in zip(self.groups, centres, words, strict=False):
            phrases = group.list_phrases()
            answers = phrases if group.answers else [""] * len(phrases)
            contents.append(GroupContents(phrases, answers, normalize_vectors([centre] * len(phrases)), group_words))
        if str(self.provenance.options.namer).startswith("model"):  # a title needs only the answers of its own group
            contents = []
        stored_count = len(contents)
        for rows, group_words in zip(clusters, words[len(self.groups) :], strict=True):
            texts, answers = [batch.texts[row] for row in rows], [batch.answers[row] for row in rows]
            contents.append(GroupContents(texts, answers, batch.vectors[rows], group_words))
        return name_groups(find_namer(self.provenance.options.namer, self.model), contents)[stored_count:]
