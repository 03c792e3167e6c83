"""Groups over time: the share of each group per day, week or month, and which groups rise or fall.

A change is Armitage's (1955) test for a linear trend in proportions: the slope of a group's share on the period's number, over
its standard error if each text fell into the group by the same chance. Texts come in bursts, so where shares scatter about the
trend by more than chance the error grows with the scatter (quasi-likelihood; Student's t on the periods). p-values are corrected
over the groups by Benjamini and Hochberg's false discovery rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import entries
from inbedder.errors import InputError
from inbedder.grouping.crosstab import MAX_FALSE_DISCOVERY_RATE, Categories, CrossTable, Numbers, categorize_groups, cross
from inbedder.grouping.dates import Calendar, calendar, parse_dates

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts


@dataclass(frozen=True)
class Change:
    """How one group's share changes from the first period to the last."""

    first: float
    """Share in the first period on the fitted line, 0 to 1."""
    last: float
    """Share in the last period on the fitted line."""
    false_discovery_rate: float
    """Corrected p-value of a change."""

    @property
    def direction(self) -> str:
        """Either "rising" or "falling" where the change is more than chance explains, else "steady"."""
        if self.false_discovery_rate > MAX_FALSE_DISCOVERY_RATE or self.first == self.last:
            return "steady"
        return "rising" if self.last > self.first else "falling"


@dataclass(frozen=True, eq=False)
class OverTime:
    """One grouping over time."""

    table: CrossTable
    """Groups by periods."""
    calendar: Calendar
    """The periods."""
    changes: list[Change]
    """How each group changes."""

    @property
    def shares(self) -> Numbers:
        """Share of each group in each period, shape (groups, periods), 0 to 1; NaN in a period without texts."""
        with np.errstate(invalid="ignore"):
            shares: Numbers = self.table.counts / self.table.counts.sum(axis=0)
        return shares

    @property
    def undated(self) -> int:
        """Texts without a date, which are not counted."""
        return int((self.calendar.period_of < 0).sum())

    def records(self) -> list[dict[str, Any]]:
        """The shares as rows of a table.

        Returns:
            One row per group and period: group, period, count and share of the period's texts (None where it has none).
        """
        shares = self.shares
        return [
            {"group": group, "period": period, "count": int(count), "share": None if np.isnan(share) else float(share)}
            for group, counts, line in zip(self.table.rows.names, self.table.counts, shares, strict=True)
            for period, count, share in zip(self.calendar.names, counts, line, strict=True)
        ]


def over_time(
    results: GroupedTexts | Sequence[GroupedTexts],
    dates: Sequence[Any],
    every: str = "auto",
    *,
    date_format: str | None = None,
    title: str = "date",
) -> list[OverTime]:
    """Follow the groups of one or several groupings of one corpus over time.

    Args:
        results: One grouping per question, all of the same n texts; or a single one.
        dates: A date per text, n, as ``parse_dates`` reads them; texts with blank ones are left out.
        every: "day", "week", "month", or "auto" by how long a time it is.
        date_format: How dates are written, as ``datetime.strptime`` reads it; None finds out.
        title: What the dates are called.

    Returns:
        The groups of each grouping over time.

    Raises:
        InputError: When texts and dates differ in number, or a date cannot be read.
    """
    groupings = list(results) if isinstance(results, Sequence) else [results]
    values = entries("dates", dates)
    if any(len(grouping.texts) != len(values) for grouping in groupings):
        raise InputError(f"{len(groupings[0].texts)} texts but {len(values)} dates: give one date per text, or a blank one.")
    periods = calendar(parse_dates(values, date_format), every)
    columns = Categories(title, periods.names, periods.period_of)
    tables = [cross(categorize_groups(grouping), columns) for grouping in groupings]
    return [OverTime(table, periods, find_changes(table)) for table in tables]


def find_changes(table: CrossTable) -> list[Change]:
    """Test each group for a rising or falling share over a table's columns, the periods in their order."""
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
    any_change = ((counts - np.outer(overall, texts)) ** 2 / texts).sum(axis=1) / variance  # with one degree less than periods
    freedom = len(periods) - 2
    scatter = np.maximum((any_change - trend) / max(freedom, 1), 1.0)
    normal_p = 2 * norm.sf(np.sqrt(trend))
    scattered_p = 2 * t.sf(np.sqrt(trend / scatter), max(freedom, 1))
    p_values = np.where((scatter > 1) & (freedom > 0), scattered_p, normal_p)
    rates = false_discovery_control(np.clip(p_values, 0, 1))
    ends = np.clip(overall + np.outer([-centre, table.counts.shape[1] - 1 - centre], slope), 0, 1)
    return [Change(float(a), float(b), float(rate)) for a, b, rate in zip(ends[0], ends[1], rates, strict=True)]
