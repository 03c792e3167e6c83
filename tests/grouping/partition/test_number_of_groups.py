import numpy as np
import pytest

from inbedder.grouping.partition import number_of_groups
from inbedder.grouping.partition.number_of_groups import Choice, choose_number, count_distinct_rows
from tests.conftest import blobs


def test_a_number_that_both_criteria_prefer_has_high_confidence():
    choice = choose_number(blobs((30, 20, 10)))
    assert (choice.k, choice.by_silhouette, choice.by_davies_bouldin, choice.max_k) == (3, 3, 3, 6)
    assert choice.confidence == "high"
    assert str(choice).startswith("3 groups, chosen from 2 to 6: both criteria prefer 3; confidence high")


def test_the_geometric_mean_is_taken_if_criteria_differ(monkeypatch):
    scores = {"silhouette_score": iter(range(100)), "davies_bouldin_score": iter(range(100))}
    for name, values in scores.items():
        monkeypatch.setattr(f"sklearn.metrics.{name}", lambda *_, values=values, **__: next(values))
    choice = choose_number(np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32))
    assert (choice.by_silhouette, choice.by_davies_bouldin, choice.k) == (50, 2, 10)


def test_more_than_twelve_groups_are_found():
    draw = np.random.default_rng(0)
    rows = np.repeat(np.eye(26, 32), 20, axis=0) + 0.05 * draw.normal(size=(520, 32))
    assert choose_number(rows.astype(np.float32)).k == 26


def test_overlapping_groups_are_reported():
    choice = choose_number(np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32))
    assert choice.confidence == "low"
    assert "because groups overlap" in str(choice)


def test_the_largest_number_tried_has_low_confidence():
    assert Choice(50, 50, 50, 0.4, 50).confidence == "low"
    assert "because more may be better" in str(Choice(50, 50, 50, 0.4, 50))
    assert "one criterion prefers 16, the other 30" in str(Choice(22, 30, 16, 0.4, 50))


@pytest.mark.parametrize(("vectors", "k"), [(np.ones((9, 4)), 1), (np.repeat(np.eye(2, 4), 5, axis=0), 2), (np.ones((1, 4)), 1)])
def test_less_than_three_directions_are_as_many_groups(vectors, k):
    choice = choose_number((vectors * np.arange(1, len(vectors) + 1)[:, None]).astype(np.float32))
    assert choice.k == k
    assert str(choice).startswith("All texts are alike" if k == 1 else "2 groups: the texts are too few")


def test_only_a_sample_is_tried(monkeypatch):
    monkeypatch.setattr(number_of_groups, "MAX_SAMPLED_ROWS", 60)
    row_counts = []
    monkeypatch.setattr("sklearn.metrics.pairwise_distances", lambda rows: row_counts.append(len(rows)) or np.zeros((60, 60)))
    choose_number(blobs((300, 200, 100)))
    assert row_counts == [60]


def test_distinct_rows_are_counted_as_far_as_needed():
    rows = np.array([[1, 0], [0, 1], [2, 0], [-0.0, 3], [1, 1]], dtype=np.float32)
    assert count_distinct_rows(rows, 9) == 3
    assert count_distinct_rows(rows, 2) == 2
