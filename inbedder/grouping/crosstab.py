"""Cross tables of groupings and columns: which groups and values occur together more often than by chance.

Residuals are Haberman's (1973) adjusted standardised residuals, about standard normal where rows and columns are unrelated.
Whether a cell differs from chance is Fisher's exact test of that cell against the rest (hypergeometric, twice the smaller tail),
corrected over all cells of the table by Benjamini and Hochberg's false discovery rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import entries, whole_number
from inbedder.errors import InputError, MissingExtraError, shown
from inbedder.grouping.dates import calendar, looks_like_dates, parse_dates

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.grouping.grouped_texts import GroupedTexts

DEFAULT_MAX_VALUES = 30
"""Distinct values of a column that a table shows by default."""
MAX_FALSE_DISCOVERY_RATE = 0.05
"""A cell up to this rate differs from chance."""
BLANK = "(blank)"
Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Categories:
    """One categorization of n texts: the groups under a question, or the values of a column."""

    title: str
    """The question, or the column's name."""
    names: list[str]
    """Name of each category."""
    category_of: Counts
    """Category of each text, shape (n,); -1 where the text has none and is not counted."""


@dataclass(frozen=True, eq=False)
class CrossTable:
    """How often each of r groups meets each of c groups or values."""

    rows: Categories
    """What the r rows are."""
    columns: Categories
    """What the c columns are."""
    counts: Counts
    """Texts in each cell, shape (r, c)."""

    @property
    def total(self) -> int:
        """Texts in the table."""
        return int(self.counts.sum())

    @property
    def shares(self) -> Numbers:
        """Share of each cell in its row, shape (r, c), 0 to 1; 0 in an empty row."""
        shares: Numbers = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        return shares

    @property
    def expected(self) -> Numbers:
        """Texts that each cell would hold if rows and columns were unrelated, shape (r, c)."""
        expected: Numbers = np.outer(self.counts.sum(axis=1), self.counts.sum(axis=0)) / max(self.total, 1)
        return expected

    @property
    def lift(self) -> Numbers:
        """Texts in each cell over those expected, shape (r, c); 1 is chance, NaN in an empty row or column."""
        with np.errstate(invalid="ignore"):
            lift: Numbers = self.counts / self.expected
        return lift

    @property
    def residuals(self) -> Numbers:
        """Adjusted standardised residual of each cell, shape (r, c); 0 where a row or a column is empty or is everything."""
        outside_row = 1 - self.counts.sum(axis=1, keepdims=True) / max(self.total, 1)
        outside_column = 1 - self.counts.sum(axis=0, keepdims=True) / max(self.total, 1)
        variance = self.expected * outside_row * outside_column
        residuals: Numbers = np.divide(
            self.counts - self.expected, np.sqrt(variance), out=np.zeros(variance.shape), where=variance > 0
        )
        return residuals

    @cached_property
    def false_discovery_rates(self) -> Numbers:
        """Corrected p-value of each cell, shape (r, c); 1 where a row or a column is empty or is everything."""
        from scipy.stats import false_discovery_control, hypergeom

        row, column = self.counts.sum(axis=1, keepdims=True), self.counts.sum(axis=0, keepdims=True)
        lower = hypergeom.cdf(self.counts, self.total, row, column)
        upper = hypergeom.sf(self.counts - 1, self.total, row, column)
        rates = np.ones(self.counts.shape)
        is_tested = (row > 0) & (row < self.total) & (column > 0) & (column < self.total)
        if is_tested.any():
            rates[is_tested] = false_discovery_control(np.clip(2 * np.minimum(lower, upper), 0, 1)[is_tested])
        return rates

    @property
    def differs(self) -> Counts:
        """1 where a cell holds more texts than chance explains, -1 where fewer, else 0; shape (r, c)."""
        return np.where(self.false_discovery_rates <= MAX_FALSE_DISCOVERY_RATE, np.sign(self.residuals), 0).astype(np.int64)

    @property
    def cramers_v(self) -> float:
        """How closely rows and columns hang together: Cramér's V, 0 (not at all) to 1."""
        from scipy.stats.contingency import association

        nonempty = self.counts[self.counts.sum(axis=1) > 0][:, self.counts.sum(axis=0) > 0]
        return float(association(nonempty, method="cramer")) if min(nonempty.shape) > 1 else 0.0

    def texts(self, row: int, column: int) -> list[int]:
        """The texts of one cell.

        Args:
            row: Row of the table, 0 .. r-1.
            column: Column of the table, 0 .. c-1.

        Returns:
            Their positions in the corpus, from 0.

        Raises:
            InputError: When there is no such row or column.
        """
        row = whole_number("row", row, 0, len(self.rows.names) - 1)
        column = whole_number("column", column, 0, len(self.columns.names) - 1)
        return np.flatnonzero((self.rows.category_of == row) & (self.columns.category_of == column)).tolist()

    def records(self) -> list[dict[str, Any]]:
        """The cells as rows of a table.

        Returns:
            One row per cell: the two names, count, share of the row, lift (None where nothing is expected), residual and
            false_discovery_rate.
        """
        numbers = (self.counts, self.shares, self.lift, self.residuals, self.false_discovery_rates)
        return [
            {
                "row": row,
                "column": column,
                "count": int(count),
                "share": float(share),
                "lift": None if math.isnan(lift) else float(lift),
                "residual": float(residual),
                "false_discovery_rate": float(rate),
            }
            for row, *lines in zip(self.rows.names, *numbers, strict=True)
            for column, count, share, lift, residual, rate in zip(self.columns.names, *lines, strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """The cells as a data frame.

        Returns:
            The rows of ``records``.

        Raises:
            MissingExtraError: When pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("pandas", "mini") from error
        return pd.DataFrame(self.records())


def crosstab(
    results: GroupedTexts | Sequence[GroupedTexts],
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    most_values: int = DEFAULT_MAX_VALUES,
) -> list[CrossTable]:
    """Cross groupings of one corpus with each other, and each with columns of the table.

    Args:
        results: One grouping per question, all of the same n texts; or a single one.
        columns: Values per text by the column's name, n each: stars, countries, dates. Numbers are put in order, dates into
            days, weeks or months, other values by how frequent they are; blank cells are a value of their own.
        most_values: Maximum distinct values of a column; rarer ones are counted together.

    Returns:
        A table for each two groupings, in their order, and then one for each grouping and column.

    Raises:
        InputError: When there is nothing to cross, the groupings are of different texts, a column has another number of values,
            or nearly every text has a value of its own.
    """
    groupings = list(results) if isinstance(results, Sequence) else [results]
    columns = {} if columns is None else columns
    if not groupings or (len(groupings) == 1 and not columns):
        raise InputError("There is nothing to cross: give two groupings, or one and a column.")
    if any(grouping.texts != groupings[0].texts for grouping in groupings):
        raise InputError("The groupings are of different texts. Cross groupings of one corpus.")
    most_values = whole_number("most_values", most_values, 2)
    groups = [categorize_groups(grouping) for grouping in groupings]
    values = [categorize_values(name, cells, len(groupings[0].texts), most_values) for name, cells in columns.items()]
    pairs = [*combinations(groups, 2), *product(groups, values)]
    return [cross(left, right) for left, right in pairs]


def cross(left: Categories, right: Categories) -> CrossTable:
    """Count the texts in each pair of categories, the left ones as rows, the right ones, of the same texts, as columns."""
    counts = np.zeros((len(left.names), len(right.names)), dtype=np.int64)
    is_counted = (left.category_of >= 0) & (right.category_of >= 0)
    np.add.at(counts, (left.category_of[is_counted], right.category_of[is_counted]), 1)
    return CrossTable(left, right, counts)


def categorize_groups(result: GroupedTexts) -> Categories:
    """Categorize texts by their group, in the grouping's order; those that fit none are a group too."""
    return Categories(result.instruction, list(result.names), result.labels)


def categorize_values(title: str, values: Sequence[Any], count: int, most_values: int = DEFAULT_MAX_VALUES) -> Categories:
    """Categorize texts by the values of a column.

    Args:
        title: The column's name.
        values: A value per text.
        count: Number of texts.
        most_values: Maximum number of distinct values.

    Returns:
        Numbers in their order, dates as days, weeks or months, other values by falling frequency; then what is rarer than those,
        and blanks.

    Raises:
        InputError: When there are other than ``count`` values, or nearly as many different ones as texts.
    """
    values = entries(title, values)
    if len(values) != count:
        raise InputError(f"{count} texts but {len(values)} values in {shown(title)}: give one value per text.")
    if looks_like_dates(values):
        periods = calendar(parse_dates(values))
        names, codes = periods.names, periods.period_of
        is_blank = codes < 0
        return Categories(title, [*names, BLANK] if is_blank.any() else names, np.where(is_blank, len(names), codes))
    cells = [_format_cell(value) for value in values]
    counts = Counter(cell for cell in cells if cell)
    if len(counts) > most_values and 2 * len(counts) > count:
        raise InputError(
            f"{shown(title)} has {len(counts):,} different values among {count:,} texts, too many to cross. "
            "Name a column whose values repeat, or --over for one of dates."
        )
    frequent = [name for name, _ in counts.most_common()]
    if len(frequent) > most_values:
        frequent = frequent[: most_values - 1]
    if all(_is_number(name) for name in frequent):
        frequent.sort(key=float)
    rare_count = len(counts) - len(frequent)
    names = [*frequent, *([f"{rare_count} other values"] if rare_count else []), *([BLANK] if "" in cells else [])]
    positions = {name: i for i, name in enumerate(frequent)} | {"": len(names) - 1}
    return Categories(title, names, np.array([positions.get(cell, len(frequent)) for cell in cells], dtype=np.int64))


def _format_cell(value: Any) -> str:
    """Format a value as a table shows it: 4.0 as 4, a blank one as nothing."""
    if value is None or value != value or type(value).__name__ in ("NaTType", "NAType"):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return " ".join(str(value).split())


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False
