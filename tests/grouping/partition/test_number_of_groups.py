import numpy as np
import pytest

from inbedder.grouping.partition import number_of_groups
from inbedder.grouping.partition.number_of_groups import Choice, choose_number, count_distinct_rows
from tests.conftest import blobs


def test_a_number_that_both_criteria_prefer_has_high_confidence():
    choice = choose_number(blobs((30, 20, 10)))
    assert (choice.k, choice.by_silhouette, choice.by_davies_bouldin, choice.max_k) == (3, 3, 3, 6)
    assert choice.confidence == "high"
    assert str(choice).startswith("3 groups, chosen from 2 to 6: both measures prefer 3.")


def test_the_geometric_mean_is_taken_if_criteria_differ(monkeypatch):
    monkeypatch.setattr(number_of_groups, "_measure_criteria", lambda halves, numbers, _: make_scores(numbers, 18, 8))
    choice = choose_number(np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32))
    assert (choice.by_silhouette, choice.by_davies_bouldin, choice.k) == (18, 8, 12)
    assert "one measure prefers 8, the other 18" in str(choice)


def make_scores(numbers, *best):
    """Make scores of six halves that fall with the distance from the best number; they have no standard error."""
    return np.stack([np.tile([[0.2 - 0.01 * abs(k - each)] for k in numbers], 6) for each in best])


def test_the_largest_number_within_a_standard_error_is_preferred():
    scores = np.array([[0.1, 0.1, 0.1], [0.48, 0.50, 0.52], [0.49, 0.49, 0.49], [0.4, 0.4, 0.4]])  # standard error 0.0115
    assert number_of_groups._find_largest_good([2, 3, 4, 5], scores) == 4


def test_more_than_twenty_distinct_groups_are_found():
    draw = np.random.default_rng(0)
    rows = np.repeat(np.eye(26, 32), 20, axis=0) + 0.05 * draw.normal(size=(520, 32))
    assert choose_number(rows.astype(np.float32)).k == 26


def test_groups_that_overlap_are_five_to_twenty_and_called_an_index():
    choice = choose_number(np.random.default_rng(0).normal(size=(600, 30)).astype(np.float32))
    assert choice.confidence == "low"
    assert 5 <= choice.k <= choice.max_k == 20
    assert str(choice).endswith("read them as an index of the texts, whose borders could lie elsewhere.")


@pytest.mark.parametrize("part", [1 / 2, 1 / 3])
def test_parts_of_a_corpus_get_about_as_many_groups(part):
    rows = blobs((150, 140, 130, 120, 110, 100, 90))
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    assert choose_number(rows[: int(part * len(rows))]).k == choose_number(rows).k == 7


def test_the_largest_number_tried_has_low_confidence():
    assert Choice(50, 50, 50, 0.4, 50).confidence == "low"
    assert str(Choice(50, 50, 50, 0.4, 50)).endswith("both measures prefer 50. The groups are distinct, and more may be better.")


def test_a_number_above_both_preferred_ones_says_why():
    assert "both measures prefer 7, which would leave groups of one text or two." in str(Choice(5, 7, 7, 0.3, 20))
    assert "both measures prefer 2, too few for groups that overlap. The groups overlap" in str(Choice(5, 2, 2, 0.1, 20))
    assert "too few" not in str(Choice(3, 2, 4, 0.1, 4))


@pytest.mark.parametrize(("vectors", "k"), [(np.ones((9, 4)), 1), (np.repeat(np.eye(2, 4), 5, axis=0), 2), (np.ones((1, 4)), 1)])
def test_less_than_three_directions_are_as_many_groups(vectors, k):
    choice = choose_number((vectors * np.arange(1, len(vectors) + 1)[:, None]).astype(np.float32))
    assert choice.k == k
    assert str(choice).startswith("All texts are alike" if k == 1 else "2 groups: the texts are too few")


def test_only_a_sample_is_tried(monkeypatch):
    monkeypatch.setattr(number_of_groups, "MAX_SAMPLED_ROWS", 60)
    row_counts = []
    monkeypatch.setattr("sklearn.metrics.pairwise_distances", lambda rows: row_counts.append(len(rows)) or np.zeros((30, 30)))
    choose_number(blobs((300, 200, 100)))
    assert row_counts == [30] * 6


def test_distinct_rows_are_counted_as_far_as_needed():
    rows = np.array([[1, 0], [0, 1], [2, 0], [-0.0, 3], [1, 1]], dtype=np.float32)
    assert count_distinct_rows(rows, 9) == 3
    assert count_distinct_rows(rows, 2) == 2
