"""Cross tables of groupings and columns: which groups and values occur together more often than expected.

Residuals are Haberman's (1973) adjusted standardized residuals, about standard normal if rows and columns are unrelated. The
significance of a cell is Fisher's exact test of the cell against the rest (hypergeometric, twice the smaller tail), corrected
over all cells of the table by Benjamini and Hochberg's false discovery rate.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.arguments import check_columns, check_integer, check_list
from inbedder.errors import InputError, format_value, import_extra
from inbedder.grouping.compare.dates import is_date_column, make_calendar, parse_dates
from inbedder.grouping.describe.loose_groups import LOOSE_MARK, explain_loose_group
from inbedder.io.cell_values import is_missing
from inbedder.io.column_types import format_number
from inbedder.io.html_tables import render_html_table

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.grouping.grouped_texts import GroupedTexts

DEFAULT_MAX_VALUES = 30
"""Default maximum number of distinct values of a column in a table."""
MAX_FALSE_DISCOVERY_RATE = 0.05
"""Maximum false discovery rate of a significant cell or change."""
BLANK = "(blank)"
Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Categories:
    """A categorization of n texts: the groups under a question, or the values of a column."""

    title: str
    """The question, or the name of the column."""
    names: list[str]
    """Name of each category."""
    category_of: Counts
    """Category of each text, int64, shape (n,); -1 for a text without a category, which does not count."""
    loose: frozenset[int] = frozenset()
    """Numbers of the loose groups (see ``describe.loose_groups``)."""

    @property
    def marked_names(self) -> list[str]:
        """Name of each category, with a mark behind those of loose groups."""
        return [f"{name} {LOOSE_MARK}" if number in self.loose else name for number, name in enumerate(self.names)]


@dataclass(frozen=True, eq=False)
class CrossTable:
    """The counts of r groups by c groups or values.

    Example:
        >>> from inbedder import cluster, crosstab
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> result = cluster(texts, "What is it about?", k=2)
        >>> (table,) = crosstab(result, {"stars": [5, 5, 1, 1]})
        >>> table.total, table.counts.shape
        (4, (2, 2))
    """

    rows: Categories
    """Categories of the r rows."""
    columns: Categories
    """Categories of the c columns."""
    counts: Counts
    """Number of texts in each cell, int64, shape (r, c)."""

    def _repr_html_(self) -> str:
        signs = np.array(["", " ▲", " ▼"])[self.differs]  # the sign -1 is the last
        cells = [[f"{count:,}{sign}" for count, sign in zip(*line, strict=True)] for line in zip(self.counts, signs, strict=True)]
        rows = [[name, *line] for name, line in zip(self.rows.names, cells, strict=True)]
        title = f"{self.rows.title} × {self.columns.title} – {self.total:,} texts; ▲ more, ▼ fewer than expected"
        return render_html_table(title, ["", *self.columns.names], rows)

    @property
    def verdict(self) -> str:
        """How closely rows and columns are related, in words."""
        if self.cramers_v < 0.1 or not self.differs.any():
            return "unrelated, as far as these texts show"
        verdicts = ((0.3, "weakly related"), (0.6, "clearly related"), (0.9999, "strongly related: one tells much of the other"))
        return next((verdict for limit, verdict in verdicts if self.cramers_v < limit), "the same")

    @property
    def total(self) -> int:
        """Number of texts in the table."""
        return int(self.counts.sum())

    @property
    def shares(self) -> Numbers:
        """Share of each cell in its row, float64, shape (r, c), 0 to 1; 0 in an empty row."""
        shares: Numbers = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        return shares

    @property
    def expected(self) -> Numbers:
        """Expected number of texts in each cell if rows and columns were unrelated, float64, shape (r, c)."""
        expected: Numbers = np.outer(self.counts.sum(axis=1), self.counts.sum(axis=0)) / max(self.total, 1)
        return expected

    @property
    def lift(self) -> Numbers:
        """Observed over expected texts of each cell, float64, shape (r, c); NaN in an empty row or column."""
        with np.errstate(invalid="ignore"):
            lift: Numbers = self.counts / self.expected
        return lift

    @property
    def residuals(self) -> Numbers:
        """Adjusted standardized residual of each cell, float64, shape (r, c); 0 if its row or column holds none or all texts."""
        outside_row = 1 - self.counts.sum(axis=1, keepdims=True) / max(self.total, 1)
        outside_column = 1 - self.counts.sum(axis=0, keepdims=True) / max(self.total, 1)
        variance = self.expected * outside_row * outside_column
        residuals: Numbers = np.divide(
            self.counts - self.expected, np.sqrt(variance), out=np.zeros(variance.shape), where=variance > 0
        )
        return residuals

    @cached_property
    def false_discovery_rates(self) -> Numbers:
        """Corrected p-value of each cell, float64, shape (r, c); 1 if its row or column holds none or all texts."""
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
        """Sign of each significant cell, int64, shape (r, c): 1 for more texts than expected, -1 for fewer; else 0."""
        return np.where(self.false_discovery_rates <= MAX_FALSE_DISCOVERY_RATE, np.sign(self.residuals), 0).astype(np.int64)

    @property
    def cramers_v(self) -> float:
        """Association of rows and columns: Cramér's V, 0 (none) to 1."""
        from scipy.stats.contingency import association

        nonempty = self.counts[self.counts.sum(axis=1) > 0][:, self.counts.sum(axis=0) > 0]
        return float(association(nonempty, method="cramer")) if min(nonempty.shape) > 1 else 0.0

    def texts(self, row: int, column: int) -> list[int]:
        """List the texts of one cell.

        Args:
            row: Row of the table, 0 .. r-1.
            column: Column of the table, 0 .. c-1.

        Returns:
            Positions of the texts in the corpus, from 0.

        Raises:
            InputError: If there is no such row or column.
        """
        row = check_integer("row", row, 0, len(self.rows.names) - 1)
        column = check_integer("column", column, 0, len(self.columns.names) - 1)
        return np.flatnonzero((self.rows.category_of == row) & (self.columns.category_of == column)).tolist()

    def records(self) -> list[dict[str, Any]]:
        """Return the cells as table rows.

        Returns:
            One row per cell: the two names, count, share of the row, lift (None if no text is expected), residual and
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
        """Return the cells as a data frame.

        Returns:
            One row per cell, with the columns of ``records``.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return import_extra("pandas", "tables").DataFrame(self.records())


def crosstab(
    results: GroupedTexts | Sequence[GroupedTexts],
    columns: Mapping[str, Sequence[Any]] | None = None,
    *,
    most_values: int = DEFAULT_MAX_VALUES,
) -> list[CrossTable]:
    """Cross-tabulate groupings of one corpus with each other and with columns.

    Args:
        results: One grouping per question, all of the same n texts; or a single grouping.
        columns: n values per column name, such as stars, countries or dates, or a table. Numbers are sorted, dates are grouped
            by day, week or month, and other values are sorted by frequency. Blank cells count as a value.
        most_values: Maximum number of distinct values of a column; rarer values are counted together.

    Returns:
        One table per pair of groupings, then one per grouping and column.

    Raises:
        InputError: If there is nothing to cross-tabulate, the groupings have different texts, a column has another number of
            values, or nearly every text has its own value.

    Example:
        >>> from inbedder import cluster, crosstab
        >>> texts = ["I love cats", "I love dogs", "The parcel is late", "The parcel is lost"]
        >>> (table,) = crosstab(cluster(texts, "What is it about?", k=2), {"stars": [5, 5, 1, 1]})
        >>> table.columns.names
        ['1', '5']
    """
    groupings = list(results) if isinstance(results, Sequence) else [results]
    values_by_column = check_columns("columns", columns)
    if not groupings or (len(groupings) == 1 and not values_by_column):
        raise InputError("There is nothing to cross-tabulate. Give two groupings, or one grouping and a column.")
    if any(grouping.texts != groupings[0].texts for grouping in groupings):
        raise InputError("The groupings have different texts. Give groupings of one corpus.")
    most_values = check_integer("most_values", most_values, 2)
    groups = [categorize_groups(grouping) for grouping in groupings]
    count = len(groupings[0].texts)
    values = [categorize_values(name, cells, count, most_values) for name, cells in values_by_column.items()]
    return [count_pairs(*pair) for pair in (*combinations(groups, 2), *product(groups, values))]


def count_pairs(rows: Categories, columns: Categories) -> CrossTable:
    """Count the texts in each pair of a row category and a column category."""
    counts = np.zeros((len(rows.names), len(columns.names)), dtype=np.int64)
    is_counted = (rows.category_of >= 0) & (columns.category_of >= 0)
    np.add.at(counts, (rows.category_of[is_counted], columns.category_of[is_counted]), 1)
    return CrossTable(rows, columns, counts)


def categorize_groups(result: GroupedTexts) -> Categories:
    """Categorize texts by their group; texts that fit none form a category too."""
    loose = frozenset(number for number in range(len(result.names)) if explain_loose_group(result, number))
    return Categories(result.instruction, list(result.names), result.labels, loose)


def categorize_values(title: str, values: Sequence[Any], count: int, most_values: int = DEFAULT_MAX_VALUES) -> Categories:
    """Categorize texts by the values of a column.

    Args:
        title: The column's name.
        values: One value per text.
        count: Number of texts.
        most_values: Maximum number of distinct values.

    Returns:
        Numbers in rising order, dates by day, week or month, or other values by falling frequency; then one category of rarer
        values and one of blanks.

    Raises:
        InputError: If the number of values is not ``count``, or nearly every text has its own value.
    """
    values = check_list(title, values)
    if len(values) != count:
        raise InputError(f"{count} texts but {len(values)} values in {format_value(title)}: give one value per text.")
    if is_date_column(values):
        periods = make_calendar(parse_dates(values))
        names, codes = periods.names, periods.period_of
        is_blank = codes < 0
        return Categories(title, [*names, BLANK] if is_blank.any() else names, np.where(is_blank, len(names), codes))
    cells = [_format_cell(value) for value in values]
    counts = Counter(cell for cell in cells if cell)
    if len(counts) > most_values and 2 * len(counts) > count:
        raise InputError(
            f"{format_value(title)} has {len(counts):,} different values among {count:,} texts, too many for a cross table. "
            "Choose a column whose values repeat; use --over for a column of dates."
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
    """Format a value for a table: 4.0 as "4", a blank as an empty string."""
    if is_missing(value):
        return ""
    if isinstance(value, (float, np.floating)):
        return format_number(value)
    return " ".join(unicodedata.normalize("NFC", str(value)).split())


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False
