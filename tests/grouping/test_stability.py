import numpy as np
import pytest

from inbedder import InBedder, cluster
from inbedder.grouping import stability
from inbedder.grouping.partition import group
from inbedder.grouping.stability import describe_stability, measure_stability
from tests.conftest import blobs


def test_groups_that_stand_apart_come_back_whole_in_every_draw():
    vectors = blobs((30, 20, 10))
    assert measure_stability(vectors, group(vectors, 3), group) == [1.0, 1.0, 1.0]


def test_a_group_cut_in_two_is_shaky_and_its_neighbour_stays_stable():
    vectors = blobs((40, 40))
    labels = group(vectors, 2)
    halves = np.where(labels == 0, 0, 1 + np.arange(80) % 2)  # the second blob, cut at random
    whole, first, second = measure_stability(vectors, halves, group)
    assert describe_stability(whole) == "stable"
    assert describe_stability(first) == describe_stability(second) == "shaky"


def test_the_jaccard_similarity_is_that_of_the_drawn_rows_with_the_group_most_like_them():
    vectors = np.eye(4, dtype=np.float32)
    labels = np.array([0, 0, 1, 1])
    drawn = []

    def regroup(rows, k, seed):
        drawn.append(rows.argmax(axis=1))
        return np.zeros(len(rows), dtype=np.int64)

    found = measure_stability(vectors, labels, regroup, seed=3, draws=1)
    members = labels[drawn[0]]
    assert found == [float(np.mean(members == number)) for number in (0, 1)]


def test_draws_count_a_row_once_and_stay_small_whatever_the_corpus(monkeypatch):
    monkeypatch.setattr(stability, "MAX_DRAWN_ROWS", 50)
    vectors, seen = blobs((300, 200)), []

    def regroup(rows, k, seed):
        seen.append(len(rows))
        assert len(np.unique(rows, axis=0)) == len(rows)
        return group(rows, k, seed)

    assert measure_stability(vectors, group(vectors, 2), regroup, draws=4) == [1.0, 1.0]
    assert len(seen) == 4 and max(seen) <= 50


def test_one_group_is_stable_and_rows_in_no_group_belong_to_none():
    vectors = blobs((30, 20))
    assert measure_stability(vectors, np.zeros(50, dtype=np.int64), group) == [1.0]
    labels = group(vectors, 2)
    labels[:3] = -1

    def leaving_out(rows, k, seed):
        found = group(rows, k, seed)
        return np.where((rows[:, None] == vectors[:3]).all(axis=2).any(axis=1), -1, found)

    assert measure_stability(vectors, labels, leaving_out) == [1.0, 1.0]


def test_equal_vectors_do_not_ask_for_more_groups_than_there_are():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    found = measure_stability(vectors, np.array([0, 0, 1, 1, 2, 2]), group)
    assert all(0 < one <= 1 for one in found)


@pytest.mark.parametrize(
    ("value", "name"), [(1.0, "stable"), (0.75, "stable"), (0.7499, ""), (0.6, ""), (0.5999, "shaky"), (0.0, "shaky")]
)
def test_a_group_is_stable_from_three_quarters_on_and_shaky_below_six_tenths(value, name):
    assert describe_stability(value) == name


def test_cluster_says_how_stable_each_group_is(make_model):
    texts = [f"text number {i}" for i in range(24)]
    vectors = np.pad(blobs((14, 10)), ((0, 0), (0, 24)))
    result = cluster(texts, "What?", InBedder(make_model("opt")), k=2, embeddings=vectors)
    assert result.stability == [1.0, 1.0]


def test_merged_groups_are_drawn_in_their_parts():
    vectors = blobs((20, 20, 20, 20))
    merged = np.array([0, 0, 1, 2])[group(vectors, 4)]
    assert min(measure_stability(vectors, merged, group)) < 0.75
    assert measure_stability(vectors, merged, group, parts=4) == [1.0, 1.0, 1.0]
