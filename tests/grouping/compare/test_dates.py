from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest

from inbedder.errors import InputError
from inbedder.grouping.compare.dates import is_date_column, make_calendar, parse_dates

MARCH = date(2024, 3, 5)


@pytest.mark.parametrize(
    "value",
    [
        MARCH, datetime(2024, 3, 5, 23, 59), np.datetime64("2024-03-05T10:00"), pd.Timestamp("2024-03-05 01:00", tz="UTC"),
        "2024-03-05", "2024-03-05T23:30:00Z", "2024-03-05 11:35:52 -0800", " 2024-03-05 10:11:12.123456 ", "20240305",
        "Mar 05, 2024", "5 March 2024", "05.03.24", "5.3.2024 22:15:30", "2024/03/05 10:00", "Tue Mar 05 10:00:00 +0000 2024",
    ],
)  # fmt: skip
def test_dates_of_many_formats_are_parsed(value):
    assert parse_dates([value]) == [MARCH]


@pytest.mark.parametrize("blank", [None, "", "  ", "NaN", float("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_a_blank_is_not_a_date(blank):
    assert parse_dates([blank, "2024-03-05"]) == [None, MARCH]


def test_an_invalid_date_format_is_named():
    with pytest.raises(InputError, match="The date format '%Y%Y' cannot be used"):
        parse_dates(["20242024"], "%Y%Y")


def test_other_dates_or_the_user_decide_the_order_of_day_and_month():
    assert parse_dates(["03/05/2024", "12/31/2023"]) == [MARCH, date(2023, 12, 31)]
    assert parse_dates(["05/03/2024", "31/12/2023"]) == [MARCH, date(2023, 12, 31)]
    assert parse_dates(["05/03/2024"], "%d/%m/%Y") == [MARCH]
    assert parse_dates(["05.03.2024 10:15"]) == [MARCH]
    with pytest.raises(InputError, match=r"'05/03/2024' is 2024-05-03 or 2024-03-05, .* --date-format"):
        parse_dates(["05/03/2024", "01/01/2024"])
    with pytest.raises(InputError, match="no other date decides"):
        parse_dates(["05/03/2024", "31/12/2023", "12/31/2023"])


@pytest.mark.parametrize("value", ["soon", "5", "101112", "1709596800", "May", "5 March", "2024", "31/31/2024"])
def test_what_is_not_a_date_is_refused(value):
    with pytest.raises(InputError, match=rf"'{value}' is not a date \(1 of 3 different values are not\).* --date-format"):
        parse_dates(["05.03.2024", "06.03.2024", value, value])
    with pytest.raises(InputError, match=r"'2024-03-05' is not a date in the format %d.%m.%Y"):
        parse_dates(["2024-03-05"], "%d.%m.%Y")
    with pytest.raises(InputError, match="5 is not a date"):
        parse_dates([5])


def test_a_column_may_mix_formats_and_omit_the_day():
    assert parse_dates(["March 2024", "2024-03", "5 Mar 2024 10:15 PM", "Mar 5, 24"]) == [date(2024, 3, 1)] * 2 + [MARCH] * 2


def test_columns_of_iso_dates_are_recognized():
    assert is_date_column(["2024-03-05", None, MARCH])
    assert not any(map(is_date_column, ([], [None], ["20240305"], ["2024-03-05", "soon"], ["1234-12"], [5], ["2024-03-05", 5])))


def test_periods_follow_each_other_without_a_gap():
    days = [date(2023, 12, 31), None, date(2024, 1, 1), date(2024, 3, 31)]
    months, weeks = make_calendar(days, "month"), make_calendar(days, "week")
    assert months.names == ["2023-12", "2024-01", "2024-02", "2024-03"]
    assert months.period_of.tolist() == [0, -1, 1, 3]
    assert weeks.names[:2] == ["2023-12-25", "2024-01-01"] and len(weeks.names) == 14
    assert {start.isoweekday() for start in weeks.starts} == {1}
    assert weeks.period_of.tolist() == [0, -1, 1, 13]
    assert make_calendar(days, "day").names[91] == "2024-03-31"


@pytest.mark.parametrize(
    ("last", "every"), [(date(2024, 1, 31), "day"), (date(2024, 5, 1), "week"), (date(2024, 12, 1), "month")]
)
def test_the_period_fits_the_span(last, every):
    assert make_calendar([date(2024, 1, 1), last]).every == every


@pytest.mark.parametrize(
    ("days", "every", "message"),
    [
        ([None], "auto", "contains no date"),
        ([MARCH], "year", "must be day, week, month or auto, not 'year'"),
        ([date(2020, 1, 1), MARCH], "day", "1,526 days, but the maximum is 500. Choose a longer period"),
        ([date(1, 1, 1), MARCH], "month", "span 0001-01-01 to 2024-03-05: .* Correct the wrong dates"),
    ],
)
def test_invalid_periods_are_refused(days, every, message):
    with pytest.raises(InputError, match=message):
        make_calendar(days, every)


@pytest.mark.parametrize("texts", [["24/03/04", "24/03/13"], ["23/01/05", "23/02/13"], ["24-03-04 10:00"]])
def test_a_year_of_two_digits_that_may_come_first_is_refused(texts):
    with pytest.raises(InputError, match="may come first or last"):
        parse_dates(texts)


def test_a_year_of_two_digits_that_can_only_come_last_is_read():
    assert parse_dates(["24/03/99", "31/01/98"]) == [date(1999, 3, 24), date(1998, 1, 31)]


def test_a_very_long_text_is_no_date():
    assert not is_date_column(["1" * 100_000, "2" * 100_000])
