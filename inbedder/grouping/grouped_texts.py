"""A corpus in groups, as plain data for the modules that name, cross-tabulate, save or show groups.

Tables, pages and the terminal number groups from 1; labels in Python count from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from inbedder.errors import TemplateError
from inbedder.grouping.names.naming import deduplicate_names
from inbedder.grouping.partition.between import find_second_groups
from inbedder.grouping.partition.group_distances import measure_fit
from inbedder.grouping.partition.group_shares import measure_group_shares
from inbedder.prompting.templates import resolve_instruction

if TYPE_CHECKING:
    from inbedder.grouping.partition.number_of_groups import Choice
    from inbedder.grouping.provenance import Provenance
    from inbedder.vectors.vectors import Labels, Vectors

NO_INSTRUCTION = "(no instruction)"
"""Name of the missing question of general-purpose vectors."""
LEFT_OUT = "none of these"
"""Name of the texts that fit no group or category."""
Result = TypeVar("Result", bound="GroupedTexts")


@dataclass(frozen=True)
class LabelAgreement:
    """The agreement of clusters with a label column."""

    composition: list[dict[str, int]]
    """Count of each label per cluster, the most frequent first."""
    entropy: list[float]
    """Entropy of each cluster's labels in bits; 0 if all labels are equal."""
    v_measure: float
    """Harmonic mean of homogeneity and completeness, 0 to 1 (Rosenberg and Hirschberg 2007)."""
    unlabelled: int = 0
    """Number of texts without a label, which count as "(no label)" in the composition and in neither measure."""


@dataclass(frozen=True, eq=False)
class Split:
    """A group that was split by another question."""

    instruction: str
    """The question."""
    rows: Labels
    """Positions of the group's m texts, int64."""
    vectors: Vectors
    """Vectors of the texts under the question, float32, shape (m, d)."""
    parts: Labels
    """Part of each text, int64, shape (m,)."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupedTexts:
    """A corpus in groups, as data. Two instances are equal if all their fields are."""

    unit: ClassVar[str] = "group"
    """What the page calls a group."""
    instruction: str
    """The question; of several wordings, the answered one, whose vectors are closest to the mean."""
    texts: list[str]
    """The corpus, n texts."""
    labels: Labels
    """Group of each text, shape (n,), 0 .. k-1, the largest group first; texts that fit no group form the last one."""
    keywords: list[list[str]]
    """Words that characterize each group, k lists."""
    examples: list[list[str]]
    """The most central texts of each group, k lists."""
    answers: list[str]
    """The model's answer for each text, n strings; empty if the model does not answer."""
    embeddings: Vectors
    """Vectors of the texts, float32, shape (n, d), as the model returned them."""
    evidence: list[list[list[tuple[int, int]]]] | None = None
    """Start and end of the words of each example that its answer rests on (``word_evidence``), k lists; None if not computed."""
    label_agreements: dict[str, LabelAgreement] = field(default_factory=dict)
    """Agreement of the groups with given labels, by the labels' name."""
    titles: list[str] | None = None
    """Names of the groups from the namer, k strings; None for the first keywords."""
    stability: list[float] | None = None
    """How well each group reappears when the texts are resampled (``stability.measure_stability``), k numbers from 0 to 1; 0 for
    the texts that fit no group."""
    mixed: list[bool] | None = None
    """Whether the answers of each group are too different for one name (``loose_groups.is_mixed``), k values."""
    wordings: list[str] | None = None
    """The wordings of the question whose mean vectors were grouped; None for a question in one wording."""
    choice: Choice | None = None
    """How the number of groups was chosen; None if the user set it, or the texts are too few."""
    branches: list[int] | None = None
    """Branch of the outline that each group belongs to (``outline.find_branches``), without the group of the texts that fit none;
    None with few groups."""
    left_out: int | None = None
    """Number of the group of texts that fit none; None if every text fits a group."""
    provenance: Provenance | None = None
    """Model, settings and instruction."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader, such as which groups were merged."""
    removed_directions: Vectors | None = None
    """Directions that were removed from the vectors (``apart_from``), float32, shape (r, d); None if none were."""
    parts: Labels | None = None
    """Group of each text before groups were merged and texts moved, int64, shape (n,); None if neither was done."""
    splits: list[Split] = field(default_factory=list)
    """Groups that were split by further questions, in this order."""
    index: Any = None
    """Index of the texts if they were a pandas column; None otherwise."""

    def __eq__(self, value: object) -> bool:
        if not isinstance(value, GroupedTexts):
            return NotImplemented
        pairs = [(getattr(self, field.name), getattr(value, field.name)) for field in fields(self)]
        return all(np.array_equal(a, b) if hasattr(a, "__array__") else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = ", ".join(f"{name!r}: {size}" for name, size in zip(self.names, self.sizes, strict=True))
        return f"{type(self).__name__}({self.instruction!r}, {len(self.texts)} texts, {{{groups}}})"

    def is_group(self, number: int) -> bool:
        """Return whether the texts of a number belong together: not those that fit no group."""
        return number != self.left_out

    @property
    def group_labels(self) -> Labels:
        """Group of each text, int64, shape (n,); -1 for a text that fits none."""
        is_group = np.array([self.is_group(number) for number in range(len(self.keywords))])
        return np.where(is_group[self.labels], self.labels, -1)

    @property
    def is_exact(self) -> bool:
        """Whether the groups and the page are the same on every machine (``prepare.exact``)."""
        return self.provenance is not None and self.provenance.options.exact

    @property
    def sizes(self) -> list[int]:
        """Number of texts in each group."""
        return [int(size) for size in np.bincount(self.labels)]

    @property
    def names(self) -> list[str]:
        """Short name of each group, k strings: its title, else its first keywords."""
        pairs = zip(self.titles or [""] * len(self.keywords), self.keywords, strict=True)
        names = [title or ", ".join(words[:3]) or f"group {i + 1}" for i, (title, words) in enumerate(pairs)]
        return [LEFT_OUT if i == self.left_out else name for i, name in enumerate(names)]


def make_group_columns(results: Sequence[GroupedTexts], top: int = 1) -> dict[str, list[Any]]:
    """Make the table columns of groupings: group, name, answer, fit and second group of each text.

    Args:
        results: Groupings of the same n texts.
        top: Number of groups per text.

    Returns:
        "group" (from 1), "group_name", "answer", "fit" (see ``group_distances.measure_fit``) and "between", n values each: the
        name of the group to which the answer of a text between two groups belongs (see ``partition.between``), else None. With
        several groupings the question follows each name, as in "group: What is it about?". The number and the fit of a text
        that fits no group are None. With ``top`` above 1 also "share" and, for the next best groups, "group_2", "group_name_2",
        "share_2", ... (see ``group_shares.measure_group_shares``).
    """
    columns: dict[str, list[Any]] = {}
    for result, suffix in zip(results, make_column_suffixes(results), strict=True):
        fitting = result.group_labels
        labels, names = fitting.tolist(), result.names
        columns[f"group{suffix}"] = [label + 1 if label >= 0 else None for label in labels]
        columns[f"group_name{suffix}"] = [names[label] for label in result.labels.tolist()]
        columns[f"answer{suffix}"] = list(result.answers)
        columns[f"fit{suffix}"] = [
            None if math.isnan(fit) else round(fit, 3) for fit in measure_fit(result.embeddings, fitting).tolist()
        ]
        second = find_second_groups(result.embeddings, fitting, result.answers)
        columns[f"between{suffix}"] = [names[label] if label >= 0 else None for label in second.tolist()]
        if top > 1 and fitting.max() >= 0:
            columns |= _make_share_columns(result, fitting, top, suffix)
    return columns


def _make_share_columns(result: GroupedTexts, labels: Labels, top: int, suffix: str) -> dict[str, list[Any]]:
    """Make the columns of the shares of each text's own group and of the next best groups."""
    shares = measure_group_shares(result.embeddings, labels)
    own_group = np.where(labels >= 0, labels, shares.argmax(axis=1))
    ranks = np.where(np.arange(shares.shape[1]) == own_group[:, None], np.inf, shares)  # a text's own group comes first
    order = np.argsort(-ranks, axis=1, kind="stable")[:, :top]
    values = np.take_along_axis(shares, order, axis=1).astype(np.float64).round(3)
    columns: dict[str, list[Any]] = {f"share{suffix}": values[:, 0].tolist()}
    for place in range(1, order.shape[1]):
        columns[f"group_{place + 1}{suffix}"] = (order[:, place] + 1).tolist()
        columns[f"group_name_{place + 1}{suffix}"] = [result.names[number] for number in order[:, place]]
        columns[f"share_{place + 1}{suffix}"] = values[:, place].tolist()
    return columns


def make_column_suffixes(results: Sequence[GroupedTexts]) -> list[str]:
    """Make what the names of table columns end in: nothing for one grouping, else the question of each.

    Args:
        results: Groupings of the same texts.

    Returns:
        Distinct suffixes, one per grouping.
    """
    suffixes: list[str] = []
    for result in results:
        suffix = f": {result.instruction}" if len(results) > 1 else ""
        while suffix in suffixes:  # the same question again
            suffix += " (again)"
        suffixes.append(suffix)
    return suffixes


def deduplicate_group_names(results: Sequence[Result]) -> list[Result]:
    """Make the group names of several groupings distinct.

    Args:
        results: The groupings.

    Returns:
        The groupings with distinct names; groupings whose names do not change are returned as they are.
    """
    used_names: list[str] = []
    renamed_results = []
    for result in results:
        names = deduplicate_names(result.names, result.keywords, used_names)
        renamed_results.append(result if names == result.names else replace(result, titles=names))
        used_names += names
    return renamed_results


def resolve_question(instruction: str) -> str:
    """Resolve a named instruction to its question; return an unknown name unchanged."""
    try:
        return resolve_instruction(instruction)
    except TemplateError:
        return instruction
