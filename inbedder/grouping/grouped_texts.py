"""A corpus in groups, as data: what names, crosses, saves or draws groups reads this and knows nothing of how they were made.

Groups are numbered from 1 in tables, pages and the terminal; labels in Python count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.grouping.group_distances import measure_fit

if TYPE_CHECKING:
    from inbedder.grouping.explain import LabelAgreement
    from inbedder.grouping.number_of_groups import Choice
    from inbedder.grouping.partition import Labels
    from inbedder.grouping.provenance import Provenance
    from inbedder.vectors import Vectors

LEFT_OUT = "fits no group"
"""Name of the group of texts that ``hdbscan`` leaves out."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupedTexts:
    """A corpus in groups, without the ways to write it. Two are equal when all their fields are."""

    instruction: str
    """The question; of several wordings the one that was answered, whose vectors are closest to their mean."""
    texts: list[str]
    """The corpus, n texts."""
    labels: Labels
    """Cluster of each text, shape (n,), 0 .. k-1, the largest cluster first; texts that fit none are the last one."""
    keywords: list[list[str]]
    """Words that name each cluster, k lists."""
    examples: list[list[str]]
    """The most central texts of each cluster, k lists."""
    answers: list[str]
    """The model's answer for each text; empty strings if the model does not answer."""
    embeddings: Vectors
    """float32, shape (n, d), as the model gave them."""
    head_words: list[list[str]]
    """The answer head's words for cluster mean minus corpus mean, k lists (empty where the head cannot read the layer)."""
    label_agreements: dict[str, LabelAgreement] = field(default_factory=dict)
    """How the clusters relate to given labels, by the labels' name."""
    titles: list[str] | None = None
    """The clusters' names as the namer gave them, k strings; None for their first keywords."""
    stability: list[float] | None = None
    """How well each cluster reappears when the texts are resampled, k numbers from 0 to 1 (``stability.measure_stability``); 0
    for texts that fit none."""
    wordings: list[str] | None = None
    """The wordings of the question whose vectors' mean was grouped; None where one question was asked."""
    choice: Choice | None = None
    """How the number of clusters was chosen; None if the user set it."""
    branches: list[int] | None = None
    """Branch of the tree that each cluster belongs to, k numbers from 0; None without a tree."""
    left_out: int | None = None
    """Number of the cluster of texts that fit none; None if every text fits one."""
    provenance: Provenance | None = None
    """Model, settings and instruction."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader: which groups were merged or have the same answers."""
    index: Any = None
    """Index of the texts if they were a pandas column; None otherwise."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupedTexts):
            return NotImplemented
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(np.array_equal(a, b) if hasattr(a, "__array__") else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = ", ".join(f"{name!r}: {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"{type(self).__name__}({self.instruction!r}, {len(self.texts)} texts, {{{groups}}})"

    @property
    def sizes(self) -> list[int]:
        """Texts in each cluster."""
        return [int(size) for size in np.bincount(self.labels)]

    @property
    def names(self) -> list[str]:
        """A short name of each cluster: its title where there is one (``cluster`` gives none twice), else its first keywords."""
        pairs = zip(self.titles or [""] * len(self.keywords), self.keywords, strict=True)
        names = [title or ", ".join(words[:3]) or f"group {i + 1}" for i, (title, words) in enumerate(pairs)]
        return [LEFT_OUT if i == self.left_out else name for i, name in enumerate(names)]


def group_columns(results: Sequence[GroupedTexts]) -> dict[str, list[Any]]:
    """Make the columns of a table: group, name, answer and fit of each text.

    Args:
        results: Groupings of the same n texts.

    Returns:
        For one grouping "group" (from 1), "group_name", "answer" and "fit" (see ``fitting.measure_fit``), n values each; for
        several, each of these followed by the question, as in "group: What is it about?". A text that fits no group has None for
        its number and its fit.
    """
    columns: dict[str, list[Any]] = {}
    for result in results:
        suffix = f": {result.instruction}" if len(results) > 1 else ""
        while f"group{suffix}" in columns:  # the same question once more
            suffix += " (again)"
        fitting = result.labels if result.left_out is None else np.where(result.labels == result.left_out, -1, result.labels)
        labels, names = fitting.tolist(), result.names
        columns[f"group{suffix}"] = [label + 1 if label >= 0 else None for label in labels]
        columns[f"group_name{suffix}"] = [names[label] for label in result.labels.tolist()]
        columns[f"answer{suffix}"] = list(result.answers)
        columns[f"fit{suffix}"] = [
            None if math.isnan(fit) else round(fit, 3) for fit in measure_fit(result.embeddings, fitting).tolist()
        ]
    return columns
