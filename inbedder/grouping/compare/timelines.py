"""Groups over time: the share of each group per day, week or month, and rising or falling groups.

A change is tested by Armitage's (1955) test for a linear trend in proportions: the slope of a group's share over the dates,
divided by its standard error under a constant share. Texts come in bursts, so the error grows where shares scatter about the
trend more than chance explains (quasi-likelihood, Student's t). Scatter is measured over stretches of equal length, not over the
periods of the table, so the result is the same per day, week or month. Benjamini and Hochberg's false discovery rate corrects the
p-values over the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.arguments import check_list
from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import (
    MAX_FALSE_DISCOVERY_RATE,
    Categories,
    Counts,
    CrossTable,
    Numbers,
    categorize_groups,
    count_pairs,
)
from inbedder.grouping.compare.dates import Calendar, make_calendar, parse_dates

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts

MAX_STRETCHES = 12
"""Maximum number of stretches over which the scatter of shares is measured. In shorter ones a burst would pass for a trend."""


@dataclass(frozen=True)
class Change:
    """The change of a group's share from the first day to the last."""

    first: float
    """Fitted share on the first day, 0 to 1."""
    last: float
    """Fitted share on the last day, 0 to 1."""
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
    days = parse_dates(values)
    periods = make_calendar(days, every)
    columns = Categories(title if periods.every == "day" else f"{periods.every} of {title}", periods.names, periods.period_of)
    return [_make_timeline(categorize_groups(grouping), columns, periods, days) for grouping in groupings]


def _make_timeline(groups: Categories, columns: Categories, calendar: Calendar, days: Sequence[date | None]) -> Timeline:
    """Count groups per period, and per stretch of time for their changes."""
    table = count_pairs(groups, columns)
    dated_rows = [(row, day.toordinal()) for row, day in enumerate(days) if day is not None]
    rows, numbers = (np.array(column, dtype=np.int64) for column in zip(*dated_rows, strict=True))
    positions, day_count = numbers - numbers.min(), int(np.ptp(numbers)) + 1
    stretch_count = min(day_count, MAX_STRETCHES)
    stretch_of = positions * stretch_count // day_count
    counts = np.zeros((len(groups.names), stretch_count), dtype=np.int64)
    np.add.at(counts, (groups.category_of[rows], stretch_of), 1)
    sums = np.bincount(stretch_of, weights=positions, minlength=stretch_count)
    times = sums / np.maximum(counts.sum(axis=0), 1)  # the mean day of each stretch
    return Timeline(table, calendar, find_changes(counts, times, (0, day_count - 1)))


def find_changes(counts: Counts, times: Numbers, ends: tuple[float, float] = (0, 0)) -> list[Change]:
    """Test each group for a rising or falling share.

    Args:
        counts: Number of texts of each group in each stretch of time, int64, shape (groups, stretches).
        times: Time of each stretch, float64, shape (stretches,).
        ends: First and last time, for the fitted shares.

    Returns:
        One change per group.
    """
    from scipy.stats import false_discovery_control, norm, t

    totals = counts.sum(axis=0)
    is_filled = totals > 0
    if is_filled.sum() < 2:
        shares = counts.sum(axis=1) / max(totals.sum(), 1)
        return [Change(float(share), float(share), 1.0) for share in shares]
    texts, counts, times = totals[is_filled], counts[:, is_filled], times[is_filled]
    overall = counts.sum(axis=1) / texts.sum()
    centre = (texts * times).sum() / texts.sum()
    deviations = times - centre
    spread = (texts * deviations**2).sum()
    slope = counts @ deviations / spread
    variance = np.where((overall > 0) & (overall < 1), overall * (1 - overall), np.inf)  # a share of 0 or 1 does not change
    trend = slope**2 * spread / variance  # chi-square with 1 degree of freedom
    total_scatter = ((counts - np.outer(overall, texts)) ** 2 / texts).sum(
        axis=1
    ) / variance  # chi-square with one degree of freedom less than stretches
    degrees_of_freedom = len(times) - 2
    scatter = np.maximum((total_scatter - trend) / max(degrees_of_freedom, 1), 1.0)
    normal_p = 2 * norm.sf(np.sqrt(trend))
    scattered_p = 2 * t.sf(np.sqrt(trend / scatter), max(degrees_of_freedom, 1))
    p_values = np.where((scatter > 1) & (degrees_of_freedom > 0), scattered_p, normal_p)
    rates = false_discovery_control(np.clip(p_values, 0, 1))
    fitted = np.clip(overall + np.outer(np.array(ends) - centre, slope), 0, 1)
    return [Change(float(a), float(b), float(rate)) for a, b, rate in zip(*fitted, rates, strict=True)]
