"""Dates as tables hold them, and the days, weeks or months that they fall into."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from dateutil import parser
from numpy.typing import NDArray

from inbedder.errors import InputError, shown

PERIODS = ("day", "week", "month")
LONGEST = {"day": 31, "week": 31 * 7}
"""Days from the first to the last date up to which ``every="auto"`` takes days, or weeks."""
MOST_PERIODS = 500
ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
DAY_AND_MONTH = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2\d")
"""Two numbers before the year: day and month, or month and day where no dots part them."""


@dataclass(frozen=True, eq=False)
class Calendar:
    """The periods between the first and the last date of a corpus, and the period of each text."""

    every: str
    """"day", "week" or "month"."""
    starts: list[date]
    """First day of each period, one after the other without a gap."""
    period_of: NDArray[np.int64]
    """Period of each text, shape (n,); -1 where it has no date."""

    @property
    def names(self) -> list[str]:
        """Each period in ISO 8601: 2024-03-05 (the Monday, for weeks) or 2024-03."""
        return [start.isoformat()[: 7 if self.every == "month" else 10] for start in self.starts]


def parse_dates(values: Sequence[Any], date_format: str | None = None) -> list[date | None]:
    """Read a column of dates.

    Args:
        values: Dates, times, or strings that ``dateutil`` reads and that name at least a year and a month; blanks count too.
        date_format: The strings' format, as ``datetime.strptime`` takes it; None lets ``dateutil`` read them.

    Returns:
        The day of each value, in the time zone that it is written in; None where it is blank.

    Raises:
        InputError: When a value is not a date, or when day and month may be swapped (03/04/2024) and no other value decides.
    """
    strings = sorted({value.strip() for value in values if isinstance(value, str) and not _is_blank(value)})
    day_first = date_format is None and _is_day_first(strings)
    parsed = {text: _parse_text(text, day_first, date_format) for text in strings}
    wrong = [text for text, day in parsed.items() if day is None]
    if wrong:
        written = "" if date_format is None else f" written as {date_format}"
        raise InputError(
            f"{shown(wrong[0])} is not a date{written} ({len(wrong):,} of {len(strings):,} different values are not). "
            "Correct the column, or give the format of its dates with --date-format (such as %d.%m.%Y)."
        )
    return [None if _is_blank(value) else parsed[value.strip()] if isinstance(value, str) else _as_day(value) for value in values]


def looks_like_dates(values: Sequence[Any]) -> bool:
    """Whether each filled cell of a column, and at least one, is a date object or a string in ISO 8601."""
    filled = [value for value in values if not _is_blank(value)]
    return bool(filled) and all(
        bool(ISO_DAY.match(value.strip()) and _parse_text(value.strip()))
        if isinstance(value, str)
        else isinstance(value, (date, np.datetime64))
        for value in filled
    )


def calendar(days: Sequence[date | None], every: str = "auto") -> Calendar:
    """Cut time into periods of one length.

    Args:
        days: A day per text, or None.
        every: "day", "week" (from Monday), "month", or "auto": days up to a month from the first to the last day, weeks up to
            seven months, months beyond.

    Returns:
        The periods, from that of the first day to that of the last.

    Raises:
        InputError: When there is no day, the period is unknown, or there would be more than 500 of it.
    """
    if every not in ("auto", *PERIODS):
        raise InputError(f"Time is cut by {', '.join(PERIODS)} or auto, not by {shown(every)}.")
    known = [day for day in days if day is not None]
    if not known:
        raise InputError("There is no date in the column. Name one that holds dates.")
    first, last = min(known), max(known)
    if every == "auto":
        every = next((name for name, longest in LONGEST.items() if (last - first).days < longest), "month")
    numbers = {day: _number(day, every) for day in set(known)}
    lowest, count = numbers[first], numbers[last] - numbers[first] + 1
    if count > MOST_PERIODS:
        advice = "Choose a longer period" if every != "month" else "Correct the dates that are wrong"
        raise InputError(
            f"The dates reach from {first} to {last}, which is {count:,} {every}s; at most {MOST_PERIODS}. {advice}."
        )
    period_of = np.array([-1 if day is None else numbers[day] - lowest for day in days], dtype=np.int64)
    return Calendar(every, [_start(lowest + i, every) for i in range(count)], period_of)


def _number(day: date, every: str) -> int:
    if every == "month":
        return 12 * day.year + day.month - 1
    return day.toordinal() if every == "day" else (day.toordinal() - 1) // 7  # ordinal 1 was a Monday


def _start(number: int, every: str) -> date:
    if every == "month":
        return date(number // 12, number % 12 + 1, 1)
    return date.fromordinal(number) if every == "day" else date.fromordinal(1) + timedelta(weeks=number)


def _is_day_first(strings: Sequence[str]) -> bool:
    """Tell from dots and from numbers above 12 whether days come before months; refuse a column that does not decide."""
    numeric = {text: match.groups() for text in strings if (match := DAY_AND_MONTH.match(text))}
    if any(separator == "." for _, separator, _ in numeric.values()):
        return True
    day_first = all(int(second) <= 12 for _, _, second in numeric.values())
    month_first = all(int(first) <= 12 for first, _, _ in numeric.values())
    if day_first == month_first:
        for text in numeric:
            readings = [_parse_text(text, order) for order in (False, True)]
            if readings[0] != readings[1]:
                raise InputError(
                    f"The date {shown(text)} may be {readings[0]} or {readings[1]}, and the other dates do not decide. "
                    "Give the format with --date-format (%m/%d/%Y or %d/%m/%Y)."
                )
    return day_first


def _parse_text(text: str, day_first: bool = False, date_format: str | None = None) -> date | None:
    """Read a date; None where there is none, or where its year or month is missing."""
    if date_format is None:
        with suppress(ValueError):  # thirty times as fast as dateutil
            return datetime.fromisoformat(text).date()
    try:
        if date_format is not None:
            return datetime.strptime(text, date_format).date()
        if text.isdigit() and len(text) != 8:  # dateutil reads 101112 as a day in 2012
            return None
        order = day_first and not text[:4].isdigit()
        days = {
            parser.parse(text, default=datetime(number, number, 1), dayfirst=order, ignoretz=True).date() for number in (1, 2)
        }
    except (ValueError, OverflowError):
        return None
    return days.pop() if len(days) == 1 else None


def _is_blank(value: Any) -> bool:
    return value is None or str(value).strip() in ("", "nan", "NaN", "NaT", "<NA>")


def _as_day(value: Any) -> date:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise InputError(f"{shown(value)} is not a date. Give dates, times or strings such as 2024-03-05.")
