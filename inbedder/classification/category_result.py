"""The result of ``classify``: a category for each text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_finite_number, check_integer
from inbedder.classification.category_scores import DEFAULT_TEMPERATURE
from inbedder.errors import InputError, format_count, import_extra
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
MAX_GAP = 0.05
"""Maximum difference of a further category's score from the best one (``docs/how-to/code-free-form-answers.md``)."""
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
    """Number of labelled rows whose label names no category."""
    left_out_count: int = 0
    """Number of these that were found to be in none of the categories, or whose category is not sure."""
    categorized_count: int = 0
    """Number of the rows with a known category that got a category: not "none of these" or "not sure"."""

    @property
    def categorized_accuracy(self) -> float:
        """Share of the rows that got a category whose category was found, 0 to 1; NaN without such rows."""
        return self.accuracy * self.count / self.categorized_count if self.categorized_count else float("nan")

    @classmethod
    def of(cls, known_labels: Labels, labels: Labels, category_count: int) -> LabelledRows:
        """Compare labels with known ones, which are -1 where unknown, and ``category_count`` where no category is right."""
        is_known, is_other = (known_labels >= 0) & (known_labels < category_count), known_labels == category_count
        accuracy = float((labels[is_known] == known_labels[is_known]).mean()) if is_known.any() else float("nan")
        left_out_count, categorized_count = int((labels[is_other] < 0).sum()), int((labels[is_known] >= 0).sum())
        return cls(int(is_known.sum()), accuracy, int(is_other.sum()), left_out_count, categorized_count)


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
        return [self.outcome_names[outcome] for outcome in self.outcomes.tolist()]

    @property
    def outcome_names(self) -> list[str]:
        """Names of the outcomes: of the k categories, then "none of these" and "not sure"."""
        return [*(category.name for category in self.categories), LEFT_OUT, NOT_SURE]

    @cached_property
    def outcomes(self) -> Labels:
        """Outcome of each text, int64, shape (n,): its category, k for "none of these", k+1 for "not sure"."""
        count = len(self.categories)
        is_none = np.zeros(len(self.texts), dtype=bool) if self.min_score is None else self.scores.max(axis=1) < self.min_score
        return np.where(self.labels >= 0, self.labels, np.where(is_none, count, count + 1))

    def count_texts(self) -> dict[str, int]:
        """Count the texts of each category, in the order of the categories.

        Returns:
            Counts by name; those of "none of these" and "not sure" are the last if a minimum allows them.
        """
        counts = np.bincount(self.outcomes, minlength=len(self.outcome_names)).tolist()
        missing = {name for name, limit in {LEFT_OUT: self.min_score, NOT_SURE: self.min_lead}.items() if limit is None}
        return {name: count for name, count in zip(self.outcome_names, counts, strict=True) if name not in missing}

    def find_all(self, max_gap: float = MAX_GAP) -> NDArray[np.bool_]:
        """Find all categories of each text: those whose score is near its best one.

        Args:
            max_gap: Maximum difference from the best score.

        Returns:
            bool, shape (n, k). A text has at least one category, unless its best score is below ``min_score``; no category below
            ``min_score`` counts.

        Raises:
            InputError: If ``max_gap`` is negative or not finite.
        """
        if check_finite_number("max_gap", max_gap) < 0:
            raise InputError(f"max_gap is a difference of scores, at least 0, not {max_gap}.")
        is_near: NDArray[np.bool_] = self.scores >= self.scores.max(axis=1, keepdims=True) - np.float32(max_gap)
        return is_near if self.min_score is None else is_near & (self.scores >= self.min_score)

    def make_columns(self, max_gap: float = MAX_GAP) -> dict[str, list[Any]]:
        """Make the table columns of all categories of each text.

        Args:
            max_gap: Maximum difference of a category's score from the best one (``find_all``).

        Returns:
            "categories", the names joined by "; ", best first, or "none of these"; and for each category a column of 1 and 0,
            such as "category: price".

        Raises:
            InputError: If ``max_gap`` is negative or not finite.
        """
        has_category, order = self.find_all(max_gap), np.argsort(-self.scores, axis=1, kind="stable").tolist()
        names = [category.name for category in self.categories]
        joined = [
            "; ".join(names[number] for number in ranking if row[number]) or LEFT_OUT
            for ranking, row in zip(order, has_category, strict=True)
        ]
        members = has_category.astype(int).T.tolist()
        return {"categories": joined} | {f"category: {name}": row for name, row in zip(names, members, strict=True)}

    def describe_left_out(self) -> str:
        """Describe how many texts are in no category, and how far to trust their number; empty if every text is in one."""
        if self.min_score is None:
            return ""
        count = format_count(int((self.outcomes == len(self.categories)).sum()), "text")
        return f"{LEFT_OUT!r}: {count} of {len(self.texts):,} whose best score is below {self.min_score:.2f}. {LEFT_OUT_CAVEAT}"

    def describe_unsure(self) -> str:
        """Describe how many texts have a category that is not sure; empty if that of every text is sure."""
        if self.min_lead is None:
            return ""
        count = format_count(int((self.outcomes > len(self.categories)).sum()), "text")
        return f"{NOT_SURE!r}: {count} of {len(self.texts):,} whose best score leads by less than {self.min_lead:.3f}."

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Return one table row per text.

        Args:
            top: Number of categories per text.

        Returns:
            n rows of category, score and probability; with ``top`` above 1 also category_2, score_2, ... of the next best. The
            category of a text without one is "none of these" or "not sure", its score the best one. If a minimum allows these,
            category_1, score_1 and probability_1 are the best category of each text.

        Raises:
            InputError: If ``top`` is not from 1 to the number of categories.
        """
        top = check_integer("top", top, 1, len(self.categories))
        order = np.argsort(-self.scores, axis=1, kind="stable")[:, :top].tolist()
        return [self._make_row(row, best) for row, best in enumerate(order)]

    def _make_row(self, row: int, best: list[int]) -> dict[str, Any]:
        ranking = [self._make_entry(row, number) for number in best]
        result = dict(ranking[0])
        if self.labels[row] < 0:
            result |= {"category": self.outcome_names[self.outcomes[row]], "probability": None}
        first = 1 if self.min_score is None and self.min_lead is None else 0
        if len(best) > 1:
            for place, entry in enumerate(ranking[first:], first + 1):
                result |= {f"{column}_{place}": value for column, value in entry.items()}
        return result

    def _make_entry(self, row: int, number: int) -> dict[str, Any]:
        """Make the columns of a category of a text."""
        values = self.scores[row, number], self.probabilities[row, number]
        score, probability = (round(float(value), 4) for value in values)
        return {"category": self.categories[number].name, "score": score, "probability": probability}

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
