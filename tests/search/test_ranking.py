import numpy as np
import pytest

from inbedder.search.ranking import mix_scores

INSTRUCTED, GENERIC = np.array([0.2, 0.6, 1.0]), np.array([0.5, 0.4, 0.3])


def test_the_weight_is_the_share_of_the_generic_score():
    scores, weight = mix_scores(INSTRUCTED, GENERIC, 0.5)
    np.testing.assert_allclose(scores, [0.35, 0.5, 0.65])
    assert weight == 0.5


def test_auto_gives_more_weight_to_the_scores_that_spread_more():
    scores, weight = mix_scores(INSTRUCTED, GENERIC, "auto")
    assert weight == pytest.approx(0.2)  # spreads of 4 to 1
    np.testing.assert_allclose(scores, 0.8 * INSTRUCTED + 0.2 * GENERIC)


def test_auto_of_equal_scores_is_zero():
    ones = np.ones(3)
    scores, weight = mix_scores(ones, ones, "auto")
    assert weight == 0
    assert scores.tolist() == [1, 1, 1]
