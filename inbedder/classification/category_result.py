"""The result of ``classify``: a category for each text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import check_integer
from inbedder.classification.category_scores import DEFAULT_TEMPERATURE
from inbedder.errors import format_count, import_extra
from inbedder.grouping.grouped_texts import LEFT_OUT
from inbedder.grouping.partition.temperature import compute_probabilities
from inbedder.io.html_tables import render_html_table

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.classification.categories import Category
    from inbedder.vectors.vectors import Labels, Vectors

LEFT_OUT_CAVEAT = (
    "This is no count of the texts that belong to no category: on five labelled sets, such a text scored below one of a category "
    "in only 48 to 75 of 100 pairs (50 is chance)."
)
"""How far to trust the texts that are in no category (``docs/how-to/classify.md``, mini and small)."""
NOT_SURE = "not sure"
"""Name of the category of texts that fit two about equally well."""


@dataclass(frozen=True)
class LabelledRows:
    """How well the categories of labelled rows were found."""

    count: int
    """Number of rows with a known category."""
    accuracy: float
    """Share of these rows whose category was found, 0 to 1; NaN without such rows."""
    other_count: int = 0
    """Number of further rows whose label is none of the categories."""
    left_out_count: int = 0
    """Number of these that were found to be in none of the categories, or whose category is not sure."""

    @classmethod
    def of(cls, known_labels: Labels, labels: Labels, category_count: int) -> LabelledRows:
        """Compare labels with known ones, which are -1 where unknown, and ``category_count`` where no category is right."""
        is_known, is_other = (known_labels >= 0) & (known_labels < category_count), known_labels == category_count
        accuracy = float((labels[is_known] == known_labels[is_known]).mean()) if is_known.any() else float("nan")
        return cls(int(is_known.sum()), accuracy, int(is_other.sum()), int((labels[is_other] < 0).sum()))


@dataclass(frozen=True, eq=False)
class Classification:
    """Texts in categories.

    Example:
        >>> from inbedder import classify
        >>> result = classify(["The box was crushed."], "What is the complaint about?", ["late delivery", "damaged item"])
        >>> result.scores.shape, sorted(result.rows()[0])
        ((1, 2), ['category', 'probability', 'score'])
    """

    instruction: str | None
    """The question, or None."""
    texts: list[str]
    """n texts."""
    categories: list[Category]
    """k categories."""
    labels: Labels
    """Category of each text, int64, shape (n,), 0 .. k-1; -1 for a text in none of them or whose category is not sure."""
    scores: Vectors
    """Cosine of each text and category, float32, shape (n, k)."""
    embeddings: Vectors
    """Vectors of the texts, float32, shape (n, d), as the model returned them."""
    temperature: float | None = None
    """Temperature of the probabilities, fitted on labelled rows; None for the default without such rows."""
    min_score: float | None = None
    """Minimum score of a text in a category; None if no text is in none of them."""
    min_lead: float | None = None
    """Minimum difference of the best and the second-best score; None if the category of every text is sure."""
    agreement: LabelledRows | None = None
    """How well the labelled rows were classified; None without labels."""
    index: Any = None
    """Index of the texts if they were a pandas column; None otherwise."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{name!r}: {count}" for name, count in self.count_texts().items())
        return f"Classification({self.instruction!r}, {len(self.texts)} texts, {{{counts}}})"

    def _repr_html_(self) -> str:
        title = f"{self.instruction or 'Without a question'} – {len(self.texts):,} texts"
        return render_html_table(title, ["category", "texts"], [list(item) for item in self.count_texts().items()])

    @cached_property
    def probabilities(self) -> Vectors:
        """Probability of each category, float32, shape (n, k); a frequency only if the temperature was fitted."""
        return compute_probabilities(self.scores, self.temperature or DEFAULT_TEMPERATURE)

    @property
    def names(self) -> list[str]:
        """Name of the category of each text, n strings; "none of these" for a text in none, or "not sure"."""
        labels = enumerate(self.labels.tolist())
        return [self.categories[label].name if label >= 0 else self._name_left_out(row) for row, label in labels]

    def _name_left_out(self, row: int) -> str:
        """Name why a text has no category."""
        return LEFT_OUT if self.min_score is not None and self.scores[row].max() < self.min_score else NOT_SURE

    def count_texts(self) -> dict[str, int]:
        """Count the texts of each category, in the order of the categories.

        Returns:
            Counts by name; those of "none of these" and "not sure" are the last if a minimum allows them.
        """
        counts = {category.name: int((self.labels == number).sum()) for number, category in enumerate(self.categories)}
        left_out = self._list_left_out()
        limits = {LEFT_OUT: self.min_score, NOT_SURE: self.min_lead}
        return counts | {name: left_out.count(name) for name, limit in limits.items() if limit is not None}

    def describe_left_out(self) -> str:
        """Describe how many texts are in no category, and how far to trust their number; empty if every text is in one."""
        if self.min_score is None:
            return ""
        count = format_count(self._list_left_out().count(LEFT_OUT), "text")
        return f"{LEFT_OUT!r}: {count} of {len(self.texts):,} whose best score is below {self.min_score:.2f}. {LEFT_OUT_CAVEAT}"

    def _list_left_out(self) -> list[str]:
        """List why each text without a category has none."""
        return [self._name_left_out(row) for row in np.flatnonzero(self.labels < 0).tolist()]

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Return one table row per text.

        Args:
            top: Number of categories per text.

        Returns:
            n rows of category, score and probability; with ``top`` above 1 also category_2, score_2, ... of the next best. A text
            without a category has "none of these" or "not sure", and its best category follows as the second.

        Raises:
            InputError: If ``top`` is not from 1 to the number of categories.
        """
        top = check_integer("top", top, 1, len(self.categories))
        order = np.argsort(-self.scores, axis=1, kind="stable")[:, :top].tolist()
        return [self._make_row(row, best) for row, best in enumerate(order)]

    def _make_row(self, row: int, best: list[int]) -> dict[str, Any]:
        entries: list[tuple[str, float, float | None]] = [
            (
                self.categories[number].name,
                round(float(self.scores[row, number]), 4),
                round(float(self.probabilities[row, number]), 4),
            )
            for number in best
        ]
        if self.labels[row] < 0:
            entries = [(self._name_left_out(row), entries[0][1], None), *entries][: len(best)]
        columns = ("category", "score", "probability")
        return {
            f"{column}_{place}" if place > 1 else column: value
            for place, entry in enumerate(entries, 1)
            for column, value in zip(columns, entry, strict=True)
        }

    def to_frame(self, top: int = 1) -> pd.DataFrame:
        """Return the texts and rows as a data frame.

        Args:
            top: Number of categories per text.

        Returns:
            Columns text, category, score and probability (see ``rows``); texts from a pandas column keep its index.

        Raises:
            InputError: If ``top`` is not from 1 to the number of categories.
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(
            [{"text": text, **row} for text, row in zip(self.texts, self.rows(top), strict=True)], self.index
        )
