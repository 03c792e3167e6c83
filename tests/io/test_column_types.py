import datetime

import numpy as np
import pandas
import pytest

from inbedder.io.column_types import format_number, has_one_kind, parse_numbers, shorten_digits

DAY, TIME = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5, 30)
ZONED = TIME.replace(tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["4", "-12", "0"], [4, -12, 0]),
        (["1234567890123456789", "1234567890123456788"], [1234567890123456789, 1234567890123456788]),
        (["0.5", "1.25", "1e-07"], [0.5, 1.25, 1e-07]),
        (["1.0", "2.0"], [1.0, 2.0]),
        (["9.99", "10", "-3"], [9.99, 10.0, -3.0]),
        ([str(2**63 - 1)], [2**63 - 1]),
        ([str(2**63)], None),
        (["0.5", "1234567890123456789"], None),
        (["1.10", "1.1", "1.9"], None),
        (["1", "1.0"], None),
        (["01234", "501"], None),
        (["12e5"], None),
        (["+4915112345678"], None),
        (["-0"], None),
        (["nan"], None),
        (["inf", "1.5"], None),
        (["1_000"], None),
        ([" 1"], None),
        (["٣"], None),
        (["1,5"], None),
    ],
)
def test_texts_are_numbers_only_if_they_are_spelled_so(texts, numbers):
    parsed = parse_numbers(texts)
    assert parsed == numbers
    assert parsed is None or [type(number) for number in parsed] == [type(number) for number in numbers]


def test_numbers_are_formatted_with_the_digits_of_their_type():
    values = [4.0, 4.1, np.float32(4.1), np.float16(1.1), 1e300, float("inf"), np.float32("nan"), 2**60]
    assert list(map(format_number, values)) == ["4", "4.1", "4.1", "1.1", "1e+300", "inf", "nan", str(2**60)]


def test_numbers_of_few_bits_keep_their_digits():
    assert shorten_digits(float(np.float32(4.1)), np.float32) == 4.1
    assert shorten_digits([[float(np.float16(1.1))], None], np.float16) == [[1.1], None]


@pytest.mark.parametrize(
    ("values", "is_one"),
    [
        ([DAY, DAY, None, "a"], True),
        ([TIME, pandas.Timestamp(TIME), pandas.NaT], True),
        ([ZONED, ZONED], True),
        ([DAY, TIME], False),
        ([TIME, DAY], False),
        ([TIME, ZONED], False),
        ([1, "a", None], True),
    ],
)
def test_dates_of_several_kinds_are_told_apart(values, is_one):
    assert has_one_kind(values) is is_one
