import numpy as np
import pytest

from inbedder.classification.category_scores import choose_categories, find_min_lead, find_min_score

SCORES = np.array([[0.9, 0.1, 0.2], [0.3, 0.5, 0.4], [0.1, 0.1, 0.15]], dtype=np.float32)


def test_the_minimum_score_is_the_lower_quartile_of_the_second_best():
    assert find_min_score(SCORES) == pytest.approx(np.quantile([0.2, 0.4, 0.1], 0.25))


def test_texts_below_the_minimum_are_in_no_category():
    assert choose_categories(SCORES, None).tolist() == [0, 1, 2]
    assert choose_categories(SCORES, 0.2).tolist() == [0, 1, -1]


def test_texts_with_a_small_lead_are_in_no_category():
    assert choose_categories(SCORES, None, 0.08).tolist() == [0, 1, -1]
    assert choose_categories(SCORES, None, 0.2).tolist() == [0, -1, -1]
    assert choose_categories(SCORES, 0.2, 0.09).tolist() == [0, 1, -1]
    assert find_min_lead(SCORES) == pytest.approx(np.quantile([0.7, 0.1, 0.05], 0.25))
