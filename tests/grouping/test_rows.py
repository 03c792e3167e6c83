import numpy as np
import pytest

from inbedder.grouping.rows import fits, group_columns
from tests.grouping.test_page import grouping


def test_the_fit_is_the_cosine_to_the_centre_of_the_group():
    vectors = np.array([[2, 0], [0, 3], [1, 1], [-5, 0]], dtype=np.float32)
    found = fits(vectors, np.array([0, 0, 0, 1]))
    assert found.tolist() == pytest.approx([2**-0.5, 2**-0.5, 1, 1])


def test_a_text_in_no_group_has_no_fit_and_no_number():
    result = grouping([0, 0, 1])
    result.labels[1] = -1
    columns = group_columns([result])
    assert columns["group"] == [1, None, 2]
    assert columns["group_name"] == ["word0, more0", "", "word1, more1"]
    assert columns["fit"][1] is None
    assert np.isnan(fits(result.embeddings, result.labels)[1])


def test_columns_of_several_questions_hold_the_question():
    results = [grouping([0, 1]), grouping([0, 0], instruction="Who?"), grouping([0, 1])]
    columns = group_columns(results)
    assert columns["group: What is it?"] == columns["group: What is it? (again)"] == [1, 2]
    assert columns["group: Who?"] == [1, 1]
    assert columns["answer: Who?"] == ["answer 0", "answer 0"]
    assert len(columns) == 12
    assert list(group_columns(results[:1])) == ["group", "group_name", "answer", "fit"]
