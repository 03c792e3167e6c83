"""Groupings that are kept: new texts go into the groups of old ones, or into new groups where they form some of their own."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import known_vectors, whole_number
from inbedder.embedder import InBedder
from inbedder.errors import InputError, shown
from inbedder.grouping.assignment import Assignment
from inbedder.grouping.explain import central_texts, keywords
from inbedder.grouping.fitting import nearest, own_distances, own_groups, typicality_of
from inbedder.grouping.naming import GroupContents, distinct, find_namer, name_groups
from inbedder.grouping.origin import Origin
from inbedder.grouping.partition import Labels
from inbedder.grouping.saved_files import damaged, read_kept, write_kept
from inbedder.prompting import check_texts
from inbedder.vectors import Vectors, unit

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

logger = logging.getLogger(__name__)

ANSWERS_KEPT = 50
"""Most distinct answers of a group that are kept."""
EXAMPLES = 5


@dataclass
class KeptGroup:
    """One group without its centre: name, size, keywords, examples and answers."""

    name: str
    """Its name."""
    size: int
    """Texts that it was made of."""
    keywords: list[str]
    """Words that name it."""
    examples: list[str]
    """Its most central texts."""
    answers: dict[str, int]
    """Its most frequent answers, and how often each was given."""
    by_hand: bool = False
    """Whether a person gave the name."""


@dataclass(eq=False, repr=False)
class Grouping:
    """Groups that outlive their corpus. ``ClusterResult.save`` makes one, ``Grouping.load`` opens it."""

    origin: Origin
    """Model, settings and instruction."""
    groups: list[KeptGroup]
    """The groups, k."""
    centres: Vectors
    """Mean of each group's vectors of length 1, float32, shape (k, d)."""
    labels: Labels
    """Group of each kept distance, shape (m,)."""
    distances: Vectors
    """Distance of each read text to the centre of its group without it, float32, shape (m,)."""
    how: dict[str, Any] = field(default_factory=dict)
    """How the model is loaded when it is first needed: cache, device, dtype."""
    _embedder: InBedder | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.centres = np.asarray(self.centres, dtype=np.float32)

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name!r}: {group.size}" for group in self.groups)
        return f"Grouping({self.question!r}, {self.origin.model!r}, {{{groups}}})"

    @property
    def question(self) -> str:
        """What was asked, in one line."""
        asked = self.origin.instruction
        return " / ".join(asked) if isinstance(asked, list) else asked or "(no instruction)"

    @property
    def names(self) -> list[str]:
        """Name of each group, k strings."""
        return [group.name for group in self.groups]

    @classmethod
    def of(cls, result: GroupedTexts, model: InBedder | None = None) -> Grouping:
        """Keep what a grouping needs to take new texts.

        Args:
            result: The grouping of a corpus.
            model: The model that made it; None loads it again when it is first needed.

        Returns:
            Its groups; rows that were left out are none.

        Raises:
            InputError: When nobody knows which model made its vectors, or it has no groups.
        """
        if result.origin is None:
            raise InputError("This grouping does not say which model made it. Make it with cluster().")
        count = len(result.keywords) - (result.left_out is not None)
        if not count:
            asked = f"Under {shown(result.instruction)} every text was left out"
            raise InputError(f"{asked}, so there is no group to keep. Group with a smaller min_size, or by another method.")
        sample = getattr(result.embeddings, "sample", None)
        groups, centres, distances = [], [], []
        for number, name in enumerate(result.names[:count]):
            members = np.flatnonzero(result.labels == number)
            directions = np.asarray(unit(result.embeddings[members]))
            answers = _frequent(result.answers[row] for row in members.tolist())
            groups.append(KeptGroup(name, len(members), result.keywords[number], result.examples[number], answers))
            centres.append(directions.mean(axis=0))
            if sample is not None:  # mapped vectors lie nearer to each other than read ones
                directions = directions[np.isin(members, sample)]
            distances.append(own_distances(directions, centres[-1], len(members)))
        labels = np.repeat(np.arange(count), [len(found) for found in distances])
        grouping = cls(result.origin, groups, np.stack(centres), labels, np.concatenate(distances))
        grouping._embedder = model
        return grouping

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: InBedder | str | None = None, **how: Any) -> Grouping:
        """Open a kept grouping.

        Args:
            folder: Where ``save`` put it.
            model: The model that it was made with, already loaded, or under another name (its folder was moved); None loads it
                by the name that was kept, when it is first needed.
            **how: Keyword arguments of ``InBedder`` that decide no vector: cache, cache_size, device, dtype.

        Returns:
            The grouping.

        Raises:
            InputError: When there is none, it is damaged, or the model is another.
            ModelError: When a model of that name cannot be loaded.
        """
        about, (centres, labels, distances) = read_kept(folder, ("centres", "labels", "distances"))
        try:
            groups = [KeptGroup(**group) for group in about["groups"]]
            grouping = cls(Origin(**about["origin"]), groups, centres, labels, distances, how)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(Path(folder), f"its settings are not whole ({error!r})") from error
        if reason := grouping._why_unsound():
            raise damaged(Path(folder), reason)
        if isinstance(model, InBedder):
            grouping.origin.check(model)
            grouping._embedder = model
        elif model is not None:
            grouping._embedder = grouping.origin.open(model, **how)
        return grouping

    def _why_unsound(self) -> str | None:
        """What arrays and groups contradict each other in, or None."""
        count = len(self.groups)
        if self.centres.ndim != 2 or len(self.centres) != count or not count:
            return f"{count} groups but centres of shape {self.centres.shape}"
        if self.labels.ndim != 1 or self.labels.shape != self.distances.shape:
            return f"labels of shape {self.labels.shape} but distances of shape {self.distances.shape}"
        if self.labels.dtype.kind != "i" or self.distances.dtype.kind != "f":
            return f"labels of type {self.labels.dtype} and distances of type {self.distances.dtype}"
        if not (np.isfinite(self.centres).all() and np.isfinite(self.distances).all()):
            return "its numbers are not finite"
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < count:
            return f"labels beyond its {count} groups"
        texts = [text for group in self.groups for text in (group.name, *group.keywords, *group.examples, *group.answers)]
        return None if all(isinstance(text, str) for text in (*texts, self.origin.namer)) else "a name is no text"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write json and npy files, all of them or nothing.

        Args:
            folder: New, empty, or one that holds a grouping, which is replaced.

        Raises:
            InputError: When the folder cannot be used.
        """
        about = {"origin": asdict(self.origin), "groups": [asdict(group) for group in self.groups]}
        write_kept(folder, about, {"centres": self.centres, "labels": self.labels, "distances": self.distances})

    @property
    def model(self) -> InBedder:
        """The model, which is loaded when it is first needed."""
        if self._embedder is None:
            self._embedder = self.origin.open(**self.how)
        return self._embedder

    def rename(self, names: Mapping[int, str]) -> None:
        """Name groups by hand; such names stay whatever is assigned, added or saved.

        Args:
            names: A name by number of group, from 0.

        Raises:
            InputError: When there is no such group, or a name is empty or another group's. No group is renamed then.
        """
        renamed = {whole_number("group", number, 0, len(self.groups) - 1): name for number, name in names.items()}
        for name in renamed.values():
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"{shown(name)} is no name of a group. Give a text.")
        after = [renamed.get(number, group.name) for number, group in enumerate(self.groups)]
        if twice := [name for name, count in Counter(after).items() if count > 1 and name in renamed.values()]:
            raise InputError(f"Two groups would be called {shown(twice[0])}. Give each its own name.")
        for number, name in renamed.items():
            self.groups[number] = replace(self.groups[number], name=name, by_hand=True)

    def assign(
        self,
        texts: Sequence[str],
        *,
        embeddings: Vectors | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> Assignment:
        """Put texts into the groups.

        Args:
            texts: n texts, at least one.
            embeddings: Their vectors under the instruction, shape (n, d), where they are known already.
            batch_size: Most texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            Group, distance, typicality and answer of each text.

        Raises:
            InputError: When there is no text, or the model is no longer the one that made the grouping.
        """
        rows, vectors, answers = self._read(texts, embeddings, batch_size, show_progress_bar)
        index = texts.index if hasattr(texts, "iloc") else None
        return self._assigned(rows, vectors, answers, index)

    def update(
        self,
        texts: Sequence[str],
        *,
        embeddings: Vectors | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> Assignment:
        """Put texts into the groups, and add groups where those that fit none form one of their own.

        Such a group has at least ten texts, is as tight as the kept groups are, and gets the next number; the other groups
        stay as they are. ``save`` keeps it.

        Args:
            texts: As for ``assign``.
            embeddings: As for ``assign``.
            batch_size: As for ``assign``.
            show_progress_bar: As for ``assign``.

        Returns:
            Group, distance, typicality and answer of each text, the new groups among them.

        Raises:
            InputError: As ``assign`` does.
        """
        rows, vectors, answers = self._read(texts, embeddings, batch_size, show_progress_bar)
        index = texts.index if hasattr(texts, "iloc") else None
        found = self._assigned(rows, vectors, answers, index)
        unfit = np.flatnonzero(~found.fits)
        new = [unfit[members] for members in own_groups(vectors[unfit], self.labels, self.distances)]
        if not new:
            return found
        self._add(new, rows, vectors, answers)
        return self._assigned(rows, vectors, answers, index)

    def _read(
        self, texts: Sequence[str], embeddings: Vectors | None, batch_size: int, show_progress_bar: bool | None
    ) -> tuple[list[str], Vectors, list[str]]:
        """The texts, their vectors of length 1, and their answers."""
        rows = check_texts(texts, None)[0]
        if not rows:
            raise InputError("There is no text to put into groups.")
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        if embeddings is None:
            vectors = self.origin.encode(self.model, rows, **options)
        else:
            vectors = unit(known_vectors("embeddings", embeddings, len(rows)))
        if vectors.shape[1] != self.centres.shape[1]:
            width = self.centres.shape[1]
            raise InputError(f"The groups are made of vectors of {width} numbers, and these have {vectors.shape[1]}.")
        answers = self.origin.answer(self.model, rows, **options)
        return rows, vectors, answers

    def _assigned(self, rows: list[str], vectors: Vectors, answers: list[str], index: Any) -> Assignment:
        labels, distances = nearest(vectors, self.centres)
        typicality = typicality_of(distances, self.distances)
        return Assignment(rows, labels, distances, typicality, answers, [self.groups[label].name for label in labels], index)

    def _add(self, new: list[NDArray[np.intp]], rows: list[str], vectors: Vectors, answers: list[str]) -> None:
        """Take groups of new texts in, named as the kept ones are, so that the names tell them apart."""
        first, count = len(self.groups), len(new)
        members = np.concatenate(new)
        labels = np.repeat(np.arange(first, first + count), [len(group) for group in new])
        spoken = [(answer, number) for number, group in enumerate(self.groups) for answer in _repeated(group)]
        said = answers if any(answers) else rows
        documents = [text for text, _ in spoken] + [said[row] for row in members]
        words = keywords(documents, np.concatenate([[number for _, number in spoken], labels]).astype(np.int64))
        examples = central_texts([rows[row] for row in members], vectors[members], labels - first, EXAMPLES)
        names = self._names_of(new, rows, vectors, answers, words)
        for number, group in enumerate(new):
            mine, centre = words[first + number], vectors[group].mean(axis=0)
            self.groups.append(
                KeptGroup(
                    name=distinct([names[number]], [mine], self.names)[0],
                    size=len(group),
                    keywords=mine,
                    examples=[rows[members[place]] for place in examples[number]],
                    answers=_frequent(answers[row] for row in group.tolist()),
                )
            )
            self.centres = np.concatenate([self.centres, centre[None]])
            self.distances = np.concatenate([self.distances, own_distances(vectors[group], centre, len(group))])
        self.labels = np.concatenate([self.labels, labels])

    def _names_of(
        self, new: list[NDArray[np.intp]], rows: list[str], vectors: Vectors, answers: list[str], words: list[list[str]]
    ) -> list[str]:
        """Names of new groups by the namer that named the kept ones, which it sees too."""
        kept = []
        for group, centre, found in zip(self.groups, self.centres, words, strict=False):
            spoken = _repeated(group)
            kept.append(
                GroupContents(spoken, spoken if group.answers else [""] * len(spoken), unit([centre] * len(spoken)), found)
            )
        added = [
            GroupContents([rows[row] for row in group], [answers[row] for row in group], vectors[group], found)
            for group, found in zip(new, words[len(self.groups) :], strict=True)
        ]
        if self.origin.namer.startswith("model"):  # a title needs its own group's answers alone
            return name_groups(find_namer(self.origin.namer, self.model), added)
        return name_groups(find_namer(self.origin.namer, self.model), [*kept, *added])[len(kept) :]


def _frequent(answers: Iterable[str]) -> dict[str, int]:
    return dict(Counter(answer for answer in answers if answer).most_common(ANSWERS_KEPT))


def _repeated(group: KeptGroup) -> list[str]:
    """What a kept group says: its answers as often as they were given, or its examples."""
    return [answer for answer, times in group.answers.items() for _ in range(times)] or group.examples
