"""Saved groupings, which assign new texts to the groups of earlier texts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_integer, check_vectors
from inbedder.embedder import InBedder
from inbedder.errors import InputError, format_value
from inbedder.grouping.apart_from import remove_directions
from inbedder.grouping.assignment import Assignment
from inbedder.grouping.explain import find_central_texts, find_keywords
from inbedder.grouping.group_distances import find_nearest_centres, find_new_groups, measure_member_distances, measure_typicality
from inbedder.grouping.namers import GroupContents
from inbedder.grouping.naming import deduplicate_names, find_namer, name_groups
from inbedder.grouping.partition import Labels
from inbedder.grouping.provenance import NO_INSTRUCTION, Provenance
from inbedder.grouping.saved_files import make_damage_error, read_grouping_files, write_grouping_files
from inbedder.prompting.templates import check_texts
from inbedder.vectors import Vectors, normalize_vectors

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

ARRAYS = ("centres", "labels", "distances", "removed")
"""Names of the saved arrays."""
STORED_ANSWERS_PER_GROUP = 50
"""Maximum number of distinct answers saved per group."""
EXAMPLES_PER_GROUP = 5
"""Number of central texts saved per group."""


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

    def has_valid_types(self) -> bool:
        """Whether every field has its type, which is not sure after loading."""
        if not (isinstance(self.keywords, list) and isinstance(self.examples, list) and isinstance(self.answers, dict)):
            return False
        texts, counts = (self.name, *self.keywords, *self.examples, *self.answers), (self.size, *self.answers.values())
        return all(isinstance(text, str) for text in texts) and all(isinstance(count, int) for count in counts)


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
    """Mean of each group's vectors of length 1, float32, shape (k, d)."""
    labels: Labels
    """Group of each stored distance, int64, shape (m,)."""
    distances: Vectors
    """Distance of each encoded text to the centre of the other members of its group, float32, shape (m,)."""
    removed_directions: Vectors | None = None
    """Directions that are removed from vectors (``apart_from``), float32, shape (r, d); None if none are."""
    load_options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for loading the model at its first use, such as cache, device and dtype."""
    _embedder: InBedder | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.centres = np.asarray(self.centres, dtype=np.float32)

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name!r}: {group.size}" for group in self.groups)
        return f"Grouping({self.question!r}, {self.provenance.spec.model!r}, {{{groups}}})"

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
        sample = getattr(result.embeddings, "sample", None)
        groups, centres, distances = [], [], []
        for number, name in enumerate(result.names[:count]):
            members = np.flatnonzero(result.labels == number)
            directions = np.asarray(normalize_vectors(result.embeddings[members]))
            answers = _count_answers(result.answers[row] for row in members.tolist())
            groups.append(StoredGroup(name, len(members), result.keywords[number], result.examples[number], answers))
            centres.append(directions.mean(axis=0))
            if sample is not None:  # mapped vectors lie closer together than encoded ones
                directions = directions[np.isin(members, sample)]
            distances.append(measure_member_distances(directions, centres[-1], len(members)))
        labels = np.repeat(np.arange(count), [len(group_distances) for group_distances in distances])
        removed = result.removed_directions
        grouping = cls(result.provenance, groups, np.stack(centres), labels, np.concatenate(distances), removed)
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
                refused.

        Returns:
            The grouping.

        Raises:
            InputError: If the folder holds no grouping, the grouping is damaged, or the model is another one.
            ModelError: If the model cannot be loaded.
        """
        metadata, (centres, labels, distances, removed) = read_grouping_files(folder, ARRAYS)
        try:
            groups = [StoredGroup(**group) for group in metadata["groups"]]
            provenance = Provenance.from_dict(metadata["provenance"])
            grouping = cls(provenance, groups, centres, labels, distances, removed if len(removed) else None, load_options)
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
        if self.centres.ndim != 2 or len(self.centres) != count or not count:
            return f"{count} groups but centres of shape {self.centres.shape}"
        if self.labels.ndim != 1 or self.labels.shape != self.distances.shape:
            return f"labels of shape {self.labels.shape} but distances of shape {self.distances.shape}"
        if self.labels.dtype.kind != "i" or self.distances.dtype.kind != "f":
            return f"labels of type {self.labels.dtype} and distances of type {self.distances.dtype}"
        if not (np.isfinite(self.centres).all() and np.isfinite(self.distances).all()):
            return "its arrays contain NaN or infinite numbers"
        if self.removed_directions is not None and self.removed_directions.shape[1:] != self.centres.shape[1:]:
            return f"removed directions of shape {self.removed_directions.shape}"
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < count:
            return f"labels beyond its {count} groups"
        return None if all(group.has_valid_types() for group in self.groups) else "a group has values of wrong types"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the grouping as JSON and npy files, atomically.

        Args:
            folder: A new or empty folder, or one with a saved grouping, which is replaced.

        Raises:
            InputError: If the folder cannot be used.
        """
        metadata = {"provenance": self.provenance.to_dict(), "groups": [asdict(group) for group in self.groups]}
        no_directions = np.empty((0, self.centres.shape[1]), dtype=np.float32)
        removed = no_directions if self.removed_directions is None else self.removed_directions
        arrays = dict(zip(ARRAYS, (self.centres, self.labels, self.distances, removed), strict=True))
        write_grouping_files(folder, metadata, arrays)

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
        for name in new_names.values():
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"{format_value(name)} is not a valid name of a group. Give a non-empty string.")
        all_names = [new_names.get(number, group.name) for number, group in enumerate(self.groups)]
        if duplicates := [name for name, count in Counter(all_names).items() if count > 1 and name in new_names.values()]:
            raise InputError(f"Two groups would have the name {format_value(duplicates[0])}. Give each group its own name.")
        for number, name in new_names.items():
            self.groups[number] = replace(self.groups[number], name=name, by_hand=True)

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
        clusters = [unfit_rows[rows] for rows in find_new_groups(batch.vectors[unfit_rows], self.labels, self.distances)]
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
        labels, distances = find_nearest_centres(batch.vectors, self.centres)
        typicality = measure_typicality(distances, self.distances)
        names = [self.groups[label].name for label in labels]
        return Assignment(batch.texts, labels, distances, typicality, batch.answers, names, batch.index)

    def _add_groups(self, clusters: list[NDArray[np.intp]], batch: _Batch) -> None:
        """Add groups of new texts with keywords and names that distinguish them from the stored groups."""
        first = len(self.groups)
        members = np.concatenate(clusters)
        labels = np.repeat(np.arange(first, first + len(clusters)), [len(rows) for rows in clusters])
        stored_phrases = [(phrase, number) for number, group in enumerate(self.groups) for phrase in _list_phrases(group)]
        new_phrases = batch.answers if any(batch.answers) else batch.texts
        documents = [phrase for phrase, _ in stored_phrases] + [new_phrases[row] for row in members]
        words = find_keywords(documents, np.concatenate([[number for _, number in stored_phrases], labels]).astype(np.int64))
        texts = [batch.texts[row] for row in members]
        examples = find_central_texts(texts, batch.vectors[members], labels - first, EXAMPLES_PER_GROUP)
        names = self._name_clusters(clusters, batch, words)
        for name, rows, group_words, example_rows in zip(names, clusters, words[first:], examples, strict=True):
            centre = batch.vectors[rows].mean(axis=0)
            name = deduplicate_names([name], [group_words], self.names)[0]
            answers = _count_answers(batch.answers[row] for row in rows.tolist())
            self.groups.append(StoredGroup(name, len(rows), group_words, [texts[row] for row in example_rows], answers))
            self.centres = np.concatenate([self.centres, centre[None]])
            self.distances = np.concatenate([self.distances, measure_member_distances(batch.vectors[rows], centre, len(rows))])
        self.labels = np.concatenate([self.labels, labels])

    def _name_clusters(self, clusters: list[NDArray[np.intp]], batch: _Batch, words: list[list[str]]) -> list[str]:
        """Name new groups with the namer of the stored groups, which it sees too."""
        contents = []
        for group, centre, group_words in zip(self.groups, self.centres, words, strict=False):
            phrases = _list_phrases(group)
            answers = phrases if group.answers else [""] * len(phrases)
            contents.append(GroupContents(phrases, answers, normalize_vectors([centre] * len(phrases)), group_words))
        if self.provenance.namer.startswith("model"):  # a title needs only the answers of its own group
            contents = []
        stored_count = len(contents)
        for rows, group_words in zip(clusters, words[len(self.groups) :], strict=True):
            texts, answers = [batch.texts[row] for row in rows], [batch.answers[row] for row in rows]
            contents.append(GroupContents(texts, answers, batch.vectors[rows], group_words))
        return name_groups(find_namer(self.provenance.namer, self.model), contents)[stored_count:]


def _count_answers(answers: Iterable[str]) -> dict[str, int]:
    return dict(Counter(answer for answer in answers if answer).most_common(STORED_ANSWERS_PER_GROUP))


def _list_phrases(group: StoredGroup) -> list[str]:
    """List a stored group's answers, repeated by their counts, or its examples if there are none."""
    return [answer for answer, count in group.answers.items() for _ in range(count)] or group.examples
