"""Groups over time: the share of each group per day, week or month, and rising or falling groups.

A change is tested by Armitage's (1955) test for a linear trend in proportions: the slope of a group's share over the periods,
divided by its standard error under a constant share. Texts come in bursts, so the error grows where shares scatter about the
trend more than chance explains (quasi-likelihood, Student's t over the periods). Benjamini and Hochberg's false discovery rate
corrects the p-values over the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import check_list
from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import (
    MAX_FALSE_DISCOVERY_RATE,
    Categories,
    CrossTable,
    Numbers,
    categorize_groups,
    count_pairs,
)
from inbedder.grouping.compare.dates import Calendar, make_calendar, parse_dates

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts


@dataclass(frozen=True)
class Change:
    """The change of a group's share from the first period to the last."""

    first: float
    """Fitted share in the first period, 0 to 1."""
    last: float
    """Fitted share in the last period, 0 to 1."""
    false_discovery_rate: float
    """Corrected p-value of the change."""

    @property
    def direction(self) -> str:
        """Direction of a significant change, "rising" or "falling", else "no clear change"."""
        if self.false_discovery_rate > MAX_FALSE_DISCOVERY_RATE or self.first == self.last:
            return "no clear change"
        return "rising" if self.last > self.first else "falling"


@dataclass(frozen=True, eq=False)
class Timeline:
    """The timeline of one grouping."""

    table: CrossTable
    """Groups by periods."""
    calendar: Calendar
    """The periods."""
    changes: list[Change]
    """Change of each group."""

    @property
    def shares(self) -> Numbers:
        """Share of each group in each period, float64, shape (groups, periods), 0 to 1; NaN in a period without texts."""
        with np.errstate(invalid="ignore"):
            shares: Numbers = self.table.counts / self.table.counts.sum(axis=0)
        return shares

    @property
    def undated_count(self) -> int:
        """Number of texts without a date, which do not count."""
        return int((self.calendar.period_of < 0).sum())

    def records(self) -> list[dict[str, Any]]:
        """Return the shares as table rows.

        Returns:
            One row per group and period: group, period, count and share of the period's texts (None for a period without texts).
        """
        shares = self.shares
        return [
            {"group": group, "period": period, "count": int(count), "share": None if np.isnan(share) else float(share)}
            for group, counts, line in zip(self.table.rows.names, self.table.counts, shares, strict=True)
            for period, count, share in zip(self.calendar.names, counts, line, strict=True)
        ]


def make_timelines(
    results: GroupedTexts | Sequence[GroupedTexts],
    dates: Sequence[Any],
    every: str = "auto",
    *,
    title: str = "date",
) -> list[Timeline]:
    """Make the timelines of one or several groupings of one corpus.

    Args:
        results: One grouping per question, all of the same n texts; or a single grouping.
        dates: n dates that ``parse_dates`` accepts; texts with a blank date are left out.
        every: Length of a period: "day", "week", "month" or "auto".
        title: Name of the dates.

    Returns:
        One timeline per grouping.

    Raises:
        InputError: If texts and dates differ in number, or a date cannot be parsed.
    """
    groupings = list(results) if isinstance(results, Sequence) else [results]
    values = check_list("dates", dates)
    if any(len(grouping.texts) != len(values) for grouping in groupings):
        raise InputError(f"{len(groupings[0].texts)} texts but {len(values)} dates: give one date or blank per text.")
    periods = make_calendar(parse_dates(values), every)
    columns = Categories(title if periods.every == "day" else f"{periods.every} of {title}", periods.names, periods.period_of)
    tables = [count_pairs(categorize_groups(grouping), columns) for grouping in groupings]
    return [Timeline(table, periods, find_changes(table)) for table in tables]


def find_changes(table: CrossTable) -> list[Change]:
    """Test each group of a table for a rising or falling share over the columns, which are periods in order."""
    from scipy.stats import false_discovery_control, norm, t

    totals = table.counts.sum(axis=0)
    periods = np.flatnonzero(totals)
    if len(periods) < 2:
        shares = table.counts.sum(axis=1) / max(table.total, 1)
        return [Change(float(share), float(share), 1.0) for share in shares]
    texts, counts = totals[periods], table.counts[:, periods]
    overall = counts.sum(axis=1) / texts.sum()
    centre = (texts * periods).sum() / texts.sum()
    deviations = periods - centre
    spread = (texts * deviations**2).sum()
    slope = counts @ deviations / spread
    variance = np.where((overall > 0) & (overall < 1), overall * (1 - overall), np.inf)  # a share of 0 or 1 does not change
    trend = slope**2 * spread / variance  # chi-square with 1 degree of freedom
    total_scatter = ((counts - np.outer(overall, texts)) ** 2 / texts).sum(
        axis=1
    ) / variance  # chi-square with one degree of freedom less than periods
    degrees_of_freedom = len(periods) - 2
    scatter = np.maximum((total_scatter - trend) / max(degrees_of_freedom, 1), 1.0)
    normal_p = 2 * norm.sf(np.sqrt(trend))
    scattered_p = 2 * t.sf(np.sqrt(trend / scatter), max(degrees_of_freedom, 1))
    p_values = np.where((scatter > 1) & (degrees_of_freedom > 0), scattered_p, normal_p)
    rates = false_discovery_control(np.clip(p_values, 0, 1))
    ends = np.clip(overall + np.outer([-centre, table.counts.shape[1] - 1 - centre], slope), 0, 1)
    return [Change(float(a), float(b), float(rate)) for a, b, rate in zip(ends[0], ends[1], rates, strict=True)]
