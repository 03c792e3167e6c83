import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import v_measure_score

from inbedder.vectors.vectors import compute_row_cosines
from inbedder_evaluation.metrics import fleiss_kappa, harmonic_mean, spearman, triplet_success, v_measure

RNG = np.random.default_rng(0)


def test_cosines_equal_those_written_out():
    a, b = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3))
    expected = [x @ y / np.sqrt(x @ x) / np.sqrt(y @ y) for x, y in zip(a, b, strict=True)]
    assert compute_row_cosines(a, b) == pytest.approx(expected)
    assert compute_row_cosines(np.zeros((1, 3)), b[:1]) == [0]


def test_triplet_success_counts_strict_wins():
    anchor = np.array([[1.0, 0], [1, 0], [1, 0], [1, 0]])
    closer = np.array([[1.0, 0], [0, 1], [1, 1], [1, 0]])
    farther = np.array([[0.0, 1], [1, 0], [0, 1], [2, 0]])
    assert triplet_success(anchor, closer, farther) == 50


def test_the_harmonic_mean_is_exact():
    assert harmonic_mean([80, 20]) == pytest.approx(32)
    assert harmonic_mean([50, 50, 50]) == pytest.approx(50)
    assert harmonic_mean([0, 90]) == 0


def test_spearman_with_ties_equals_scipys():
    similarities, scores = RNG.integers(0, 4, 40), RNG.integers(0, 2, 40)
    assert spearman(similarities, scores) == pytest.approx(100 * spearmanr(similarities, scores).statistic)
    assert spearman([1, 2, 3], [0, 1, 5]) == pytest.approx(100)
    assert spearman([1, 1, 1], [0, 1, 0]) == 0


def test_fleiss_kappa_is_that_of_fleiss_1971():
    counts = """0 0 0 0 14  0 2 6 4 2  0 0 3 5 6  0 3 9 2 0  2 2 8 1 1
                7 7 0 0 0   3 2 6 3 0  2 5 3 2 2  6 5 2 1 0  0 2 2 3 7"""  # 10 subjects, 14 raters, 5 categories
    assert fleiss_kappa(np.array(counts.split(), dtype=int).reshape(10, 5)) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa(np.array([[3, 0], [0, 3]])) == 1
    with pytest.raises(ValueError, match="at least two categories"):
        fleiss_kappa(np.array([[3, 0], [3, 0]]))


def test_v_measure_is_that_of_k_means_with_as_many_clusters_as_classes():
    centres = np.eye(3, 6, dtype=np.float32)
    vectors = np.repeat(centres, 10, axis=0) + 0.01 * RNG.normal(size=(30, 6)).astype(np.float32)
    labels = [str(i // 10) for i in range(30)]
    assert v_measure(vectors, labels, seed=0) == pytest.approx(100)
    merged = ["a" if label == "0" else "b" for label in labels]
    assert 0 < v_measure(vectors, merged, seed=0) < 100
    assert v_measure(vectors, labels, 1) == pytest.approx(100 * v_measure_score(labels, [i // 10 for i in range(30)]))
