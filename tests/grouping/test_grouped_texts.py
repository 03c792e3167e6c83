import numpy as np
import pytest

from inbedder.grouping.group_distances import measure_fit
from inbedder.grouping.grouped_texts import group_columns
from tests.grouping.test_page import grouping


def test_the_fit_is_one_at_the_centre_nought_between_two_groups_and_negative_nearer_to_another():
    vectors = np.array([[2, 0], [0, 3], [-5, 0], [0, 1]], dtype=np.float32)
    near, far, centre, wrong = measure_fit(vectors, np.array([0, 0, 1, 1])).tolist()
    own, other = 0.5**0.5, 2.5**0.5  # the centres are (0.5, 0.5) and (-0.5, 0.5)
    assert near == pytest.approx((other - own) / other)
    assert far == wrong == pytest.approx(0, abs=1e-6)
    assert centre == pytest.approx(near)
    assert measure_fit(vectors, np.array([0, 1, 2, 0]))[3] == pytest.approx(-1, abs=1e-3)
    assert measure_fit(vectors, np.array([0, 1, 2, 1])).tolist() == pytest.approx([1, 1, 1, 1], abs=1e-3)


def test_a_text_fits_no_better_where_there_is_one_group():
    assert np.isnan(measure_fit(np.eye(3, dtype=np.float32), np.zeros(3, dtype=int))).all()
    assert group_columns([grouping([0, 0])])["fit"] == [None, None]


def test_equal_vectors_in_two_groups_have_a_fit_of_nought():
    assert measure_fit(np.ones((2, 2), dtype=np.float32), np.array([0, 1])).tolist() == [0, 0]


def test_a_text_in_no_group_has_no_fit_and_no_number():
    result = grouping([0, 2, 1], left_out=2)
    columns = group_columns([result])
    assert columns["group"] == [1, None, 2]
    assert columns["group_name"] == ["word0, more0", "fits no group", "word1, more1"]
    assert columns["fit"][1] is None
    assert np.isnan(measure_fit(result.embeddings, np.array([0, -1, 1]))[1])


def test_columns_of_several_questions_hold_the_question():
    results = [grouping([0, 1]), grouping([0, 0], instruction="Who?"), grouping([0, 1])]
    columns = group_columns(results)
    assert columns["group: What is it?"] == columns["group: What is it? (again)"] == [1, 2]
    assert columns["group: Who?"] == [1, 1]
    assert columns["answer: Who?"] == ["answer 0", "answer 0"]
    assert len(columns) == 12
    assert list(group_columns(results[:1])) == ["group", "group_name", "answer", "fit"]
