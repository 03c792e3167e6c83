"""Dates as tables hold them, and the days, weeks or months that they fall into."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, shown

PERIODS = ("day", "week", "month")
LONGEST = {"day": 31, "week": 31 * 7}
"""Days from the first to the last date up to which ``every="auto"`` takes days, or weeks."""
MOST_PERIODS = 500
FORMATS = (
    "%Y-%m-%d %H:%M:%S %z", "%Y-%m-%dT%H:%M:%S%z", "%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%Y-%m", "%Y%m%d",
    *(f"{day}{time}" for day in ("%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%m-%d-%Y", "%d-%m-%Y",
                                 "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
      for time in ("", " %H:%M", " %H:%M:%S", " %I:%M %p")),
    "%a, %d %b %Y %H:%M:%S %z", "%a %b %d %H:%M:%S %z %Y",
)  # fmt: skip
"""Ways of writing a date beside ISO 8601."""


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
        values: Dates, times, their ISO 8601 strings, or strings that one way of writing dates fits throughout; blanks count too.
        date_format: How strings are written, as ``datetime.strptime`` reads it; None finds out.

    Returns:
        The day of each value, in the time zone that it is written in; None where it is blank.

    Raises:
        InputError: When a value is no date, or when it may be one of two (03/04/2024) and no other value tells which.
    """
    strings = sorted({text for value in values if isinstance(value, str) and (text := value.strip())})
    read = _reader(strings, date_format)
    days: list[date | None] = []
    for value in values:
        if _is_blank(value):
            days.append(None)
        elif isinstance(value, str):
            days.append(read[value.strip()])
        else:
            days.append(_as_day(value))
    return days


def looks_like_dates(values: Sequence[Any]) -> bool:
    """Whether a column holds dates throughout, and at least one: date objects, or strings in ISO 8601.

    Args:
        values: A column's values.

    Returns:
        True when each value that is not blank is a date.
    """
    filled = [value for value in values if not _is_blank(value)]
    texts = {value.strip() for value in filled if isinstance(value, str)}
    others = all(isinstance(value, (str, date, np.datetime64)) for value in filled)
    return bool(filled) and others and not any(text.isdigit() or _iso(text) is None for text in texts)


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
        advice = "Choose a longer period" if every != "month" else "Mend the dates that are wrong"
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


def _reader(strings: Sequence[str], date_format: str | None) -> dict[str, date]:
    """The day that each string means, read in the one way that fits them all."""
    ways: dict[str, Callable[[str], date | None]] = {"ISO 8601": _iso}
    ways |= {way: partial(_by_format, way=way) for way in FORMATS}
    if date_format is not None:
        ways = {date_format: partial(_by_format, way=date_format)}
    fitting = {way: read for way, read in ways.items() if all(read(text) is not None for text in strings)}
    if not fitting:
        best = max(ways, key=lambda way: sum(ways[way](text) is not None for text in strings[:100]))
        wrong = [text for text in strings if ways[best](text) is None]
        raise InputError(
            f"{shown(wrong[0])} is no date written as {best} ({len(wrong):,} of {len(strings):,} different ones are not). "
            "Mend the column, or say how its dates are written with --date-format (such as %d.%m.%Y)."
        )
    meanings = {tuple(map(read, strings)): way for way, read in fitting.items()}
    if len(meanings) > 1:
        text, readings = next((text, days) for text, *days in zip(strings, *meanings, strict=True) if len(set(days)) > 1)
        options = " or ".join(f"{day} ({way})" for day, way in zip(readings, meanings.values(), strict=True))
        raise InputError(f"The date {shown(text)} may be {options}, and no other date tells. Say which with --date-format.")
    return {text: day for text, day in zip(strings, next(iter(meanings)), strict=True) if day is not None}


def _iso(text: str) -> date | None:
    try:
        return datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text).date()
    except ValueError:
        return None


def _by_format(text: str, way: str) -> date | None:
    try:
        return datetime.strptime(text, way).date()
    except ValueError:
        return None


def _is_blank(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NaTType", "NAType")


def _as_day(value: Any) -> date:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise InputError(f"{shown(value)} is no date. Give dates, times or strings such as 2024-03-05.")
