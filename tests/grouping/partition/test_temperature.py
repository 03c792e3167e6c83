import numpy as np
import pytest

from inbedder.grouping.partition.temperature import compute_probabilities, fit_temperature

SCORES = np.array([[0.9, 0.1, 0.2], [0.3, 0.5, 0.4], [0.1, 0.1, 0.15]], dtype=np.float32)


def test_probabilities_are_the_softmax_of_scores_over_the_temperature():
    expected = np.exp(SCORES / 0.1) / np.exp(SCORES / 0.1).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(compute_probabilities(SCORES, 0.1), expected, rtol=1e-5)


def test_the_fitted_temperature_is_the_one_that_drew_the_labels():
    generator = np.random.default_rng(0)
    scores = generator.uniform(-1, 1, (20_000, 4)).astype(np.float32)
    cumulated = compute_probabilities(scores, 0.3).cumsum(axis=1)
    labels = (generator.random((20_000, 1)) > cumulated).sum(axis=1)
    assert fit_temperature(scores, labels) == pytest.approx(0.3, rel=0.05)
