import numpy as np
import pytest

from inbedder.grouping.grouped_texts import make_group_columns
from inbedder.grouping.partition.group_distances import measure_fit
from tests.grouping.report.test_page import grouping


def test_the_fit_is_one_at_the_centre_and_zero_between_two_groups():
    vectors = np.array([[2, 0], [0, 3], [-5, 0], [0, 1]], dtype=np.float32)
    near_fit, far_fit, centre_fit, wrong_fit = measure_fit(vectors, np.array([0, 0, 1, 1])).tolist()
    own_distance, other_distance = 0.5**0.5, 2.5**0.5  # the centres are (0.5, 0.5) and (-0.5, 0.5)
    assert near_fit == pytest.approx((other_distance - own_distance) / other_distance)
    assert far_fit == wrong_fit == pytest.approx(0, abs=1e-6)
    assert centre_fit == pytest.approx(near_fit)
    assert measure_fit(vectors, np.array([0, 1, 2, 0]))[3] == pytest.approx(-1, abs=1e-3)
    assert measure_fit(vectors, np.array([0, 1, 2, 1])).tolist() == pytest.approx([1, 1, 1, 1], abs=1e-3)


def test_a_single_group_has_no_fit():
    assert np.isnan(measure_fit(np.eye(3, dtype=np.float32), np.zeros(3, dtype=int))).all()
    assert make_group_columns([grouping([0, 0])])["fit"] == [None, None]


def test_equal_vectors_in_two_groups_have_a_fit_of_zero():
    assert measure_fit(np.ones((2, 2), dtype=np.float32), np.array([0, 1])).tolist() == [0, 0]


def test_a_text_in_no_group_has_no_fit_and_no_number():
    result = grouping([0, 2, 1], left_out=2)
    columns = make_group_columns([result])
    assert columns["group"] == [1, None, 2]
    assert columns["group_name"] == ["word0, more0", "none of these", "word1, more1"]
    assert columns["fit"][1] is None
    assert np.isnan(measure_fit(result.embeddings, np.array([0, -1, 1]))[1])


def test_columns_of_several_questions_name_the_question():
    results = [grouping([0, 1]), grouping([0, 0], instruction="Who?"), grouping([0, 1])]
    columns = make_group_columns(results)
    assert columns["group: What is it?"] == columns["group: What is it? (again)"] == [1, 2]
    assert columns["group: Who?"] == [1, 1]
    assert columns["answer: Who?"] == ["answer 0", "answer 0"]
    assert len(columns) == 15
    assert list(make_group_columns(results[:1])) == ["group", "group_name", "answer", "fit", "between"]
