"""Dates in tables, and their days, weeks or months."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value, import_extra
from inbedder.io.cell_values import is_blank

PERIODS = ("day", "week", "month")
MAX_SPAN_DAYS = {"day": 31, "week": 31 * 7}
"""Days from the first to the last date below which ``every="auto"`` chooses days or weeks."""
MAX_PERIODS = 500
MISSING_NAMES = ("nan", "NaN", "NaT", "<NA>")
"""How pandas writes a missing value as text."""
ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
MAX_DATE_CHARACTERS = 100
"""A longer text is no date."""
DAY_AND_MONTH = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2\d")
"""Two numbers before the year: day and month, or month and day unless dots separate them."""
THREE_NUMBERS = re.compile(r"(\d{2})[/-](\d{2})[/-](\d{2})(?:[ T].*)?")
"""A date whose year has two digits."""


@dataclass(frozen=True, eq=False)
class Calendar:
    """The periods from the first to the last date of a corpus, and the period of each text."""

    every: str
    """"day", "week" or "month"."""
    starts: list[date]
    """First day of each period, without gaps."""
    period_of: NDArray[np.int64]
    """Period of each text, int64, shape (n,); -1 for a text without a date."""

    @property
    def names(self) -> list[str]:
        """Name of each period in ISO 8601: 2024-03-05 (for a week, its Monday) or 2024-03."""
        return [start.isoformat()[: 7 if self.every == "month" else 10] for start in self.starts]


def parse_dates(values: Sequence[Any], date_format: str | None = None) -> list[date | None]:
    """Parse a column of dates.

    Args:
        values: Dates, times, blanks, or strings with at least a year and a month that ``dateutil`` parses.
        date_format: Format of the strings for ``datetime.strptime``; None lets ``dateutil`` parse them.

    Returns:
        The day of each value in its own time zone; None for a blank value.

    Raises:
        InputError: If a value is not a date, the date format is invalid, or every value leaves open which number is the day
            (03/04/2024).
    """
    strings = sorted({value.strip() for value in values if isinstance(value, str) and not _is_undated(value)})
    day_first = date_format is None and _is_day_first(strings)
    parsed = {text: _parse_text(text, day_first, date_format) for text in strings}
    invalid = [text for text, day in parsed.items() if day is None]
    if invalid:
        suffix = "" if date_format is None else f" in the format {date_format}"
        raise InputError(
            f"{format_value(invalid[0])} is not a date{suffix} ({len(invalid):,} of {len(strings):,} different values are not). "
            "Correct the column, or give the format of its dates with --date-format (such as %d.%m.%Y)."
        )
    return [
        None if _is_undated(value) else parsed[value.strip()] if isinstance(value, str) else _convert_to_day(value)
        for value in values
    ]


def is_date_column(values: Sequence[Any]) -> bool:
    """Return whether a column has a value, and all its values are date objects or strings in ISO 8601."""
    filled = [value for value in values if not _is_undated(value)]
    return bool(filled) and all(
        bool(ISO_DAY.match(value.strip()) and _parse_text(value.strip()))
        if isinstance(value, str)
        else isinstance(value, (date, np.datetime64))
        for value in filled
    )


def make_calendar(days: Sequence[date | None], every: str = "auto") -> Calendar:
    """Divide time into periods of one length.

    Args:
        days: Day of each text, or None.
        every: "day", "week" (from Monday), "month" or "auto". "auto" chooses days for a span of up to a month, weeks up to seven
            months, else months.

    Returns:
        The periods from the first to the last day.

    Raises:
        InputError: If there is no day, the period is unknown, or there are more than 500 periods.
    """
    if every not in ("auto", *PERIODS):
        raise InputError(f"The period must be {', '.join(PERIODS)} or auto, not {format_value(every)}.")
    dated_days = [day for day in days if day is not None]
    if not dated_days:
        raise InputError("The column contains no date. Choose a column of dates.")
    first, last = min(dated_days), max(dated_days)
    if every == "auto":
        every = next((name for name, span in MAX_SPAN_DAYS.items() if (last - first).days < span), "month")
    numbers = {day: _number_period(day, every) for day in set(dated_days)}
    lowest, count = numbers[first], numbers[last] - numbers[first] + 1
    if count > MAX_PERIODS:
        advice = "Choose a longer period" if every != "month" else "Correct the wrong dates"
        raise InputError(f"The dates span {first} to {last}: {count:,} {every}s, but the maximum is {MAX_PERIODS}. {advice}.")
    period_of = np.array([-1 if day is None else numbers[day] - lowest for day in days], dtype=np.int64)
    return Calendar(every, [_find_start(lowest + i, every) for i in range(count)], period_of)


def _number_period(day: date, every: str) -> int:
    if every == "month":
        return 12 * day.year + day.month - 1
    return day.toordinal() if every == "day" else (day.toordinal() - 1) // 7  # ordinal 1 was a Monday


def _find_start(number: int, every: str) -> date:
    if every == "month":
        return date(number // 12, number % 12 + 1, 1)
    return date.fromordinal(number) if every == "day" else date.fromordinal(1) + timedelta(weeks=number)


def _is_day_first(strings: Sequence[str]) -> bool:
    """Infer from dots and numbers above 12 whether days precede months; reject an ambiguous column."""
    numeric = {text: match.groups() for text in strings if (match := DAY_AND_MONTH.match(text))}
    _check_short_years(numeric)
    if any(separator == "." for _, separator, _ in numeric.values()):
        return True
    day_first = all(int(second) <= 12 for _, _, second in numeric.values())
    month_first = all(int(first) <= 12 for first, _, _ in numeric.values())
    if day_first == month_first:
        for text in numeric:
            readings = [_parse_text(text, order) for order in (False, True)]
            if readings[0] != readings[1]:
                raise InputError(
                    f"The date {format_value(text)} is {readings[0]} or {readings[1]}, and no other date decides which. "
                    "Give the format with --date-format (%m/%d/%Y or %d/%m/%Y)."
                )
    return day_first


def _check_short_years(texts: Iterable[str]) -> None:
    """Reject a column of three numbers of two digits if the year can be the first as well as the last: 24/03/04."""
    short = [tuple(map(int, match.groups())) for text in texts if (match := THREE_NUMBERS.fullmatch(text))]
    if not short:
        return
    can_be_first = all(1 <= month <= 12 and 1 <= day <= 31 for _, month, day in short)
    can_be_last = all(1 <= a <= 31 and 1 <= b <= 31 and min(a, b) <= 12 for a, b, _ in short)
    if can_be_first and can_be_last and any(a != c for a, _, c in short):
        text = next(text for text in texts if THREE_NUMBERS.fullmatch(text))
        raise InputError(
            f"The year of {format_value(text)} may come first or last. Give the format with --date-format (%y/%m/%d or %d/%m/%y)."
        )


def _parse_text(text: str, day_first: bool = False, date_format: str | None = None) -> date | None:
    """Parse a date; return None if there is no date, or no year or month."""
    if len(text) > MAX_DATE_CHARACTERS:
        return None
    if date_format is None:
        with suppress(ValueError):  # much faster than dateutil
            return datetime.fromisoformat(text).date()
    try:
        if date_format is not None:
            return datetime.strptime(text, date_format).date()
        if text.isdigit() and len(text) != 8:  # dateutil reads 101112 as a day in 2012
            return None
        order = day_first and not text[:4].isdigit()
        days = {
            import_extra("dateutil.parser", "report")
            .parse(text, default=datetime(number, number, 1), dayfirst=order, ignoretz=True)
            .date()
            for number in (1, 2)
        }
    except re.error as error:  # strptime makes a pattern of the format
        raise InputError(
            f"The date format {format_value(date_format)} cannot be used ({error}). Write each part once."
        ) from error
    except (ValueError, OverflowError):
        return None
    return days.pop() if len(days) == 1 else None


def _is_undated(value: Any) -> bool:
    """Return whether a cell is blank, or holds the name under which a missing value was written to a file."""
    return is_blank(value) or str(value).strip() in MISSING_NAMES


def _convert_to_day(value: Any) -> date:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise InputError(f"{format_value(value)} is not a date. Give dates, times or strings such as 2024-03-05.")
