import datetime
import json
import math
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from inbedder.io.cell_values import dump_json, is_blank, is_missing, to_json_value, to_text

MISSING = [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NaT, pd.NA, Decimal("NaN")]
PRESENT = ["", " ", "nan", 0, 0.0, False, float("inf"), [], [math.nan], {}, np.array([1.0, math.nan]), b"", datetime.date.max]


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_value_is_recognized_in_every_type(value):
    assert is_missing(value)
    assert is_blank(value)


@pytest.mark.parametrize("value", PRESENT, ids=repr)
def test_other_values_are_not_missing(value):
    assert not is_missing(value)
    assert is_blank(value) == (isinstance(value, str) and not value.strip())


def test_json_has_null_for_what_it_cannot_hold():
    value = {"a": [float("nan"), float("inf"), -float("inf"), pd.NA, 1.5], 2: {"b": (np.float64("nan"), True)}, "c": "x"}
    assert json.loads(dump_json(value)) == {"a": [None, None, None, None, 1.5], "2": {"b": [None, True]}, "c": "x"}


def test_json_has_the_text_of_other_types():
    key = uuid.uuid4()
    value = [key, b"caf\xc3\xa9 \xff", datetime.date(2024, 1, 2), Decimal("1.50")]
    assert to_json_value(value) == [str(key), "café \\xff", "2024-01-02", "1.50"]
    assert to_text({"é": [float("nan")]}) == '{"é": [null]}'
