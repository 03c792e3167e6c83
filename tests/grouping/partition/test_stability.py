import numpy as np
import pytest

from inbedder import InBedder, cluster
from inbedder.grouping.partition import stability
from inbedder.grouping.partition.partition import group
from inbedder.grouping.partition.stability import describe_stability, measure_stability
from tests.conftest import blobs


def test_well_separated_groups_reappear_in_every_resample():
    vectors = blobs((30, 20, 10))
    assert measure_stability(vectors, group(vectors, 3), group) == [1.0, 1.0, 1.0]


def test_a_group_cut_in_two_is_shaky_and_its_neighbour_stays_stable():
    vectors = blobs((40, 40))
    labels = group(vectors, 2)
    halves = np.where(labels == 0, 0, 1 + np.arange(80) % 2)  # the second blob, cut at random
    stable, first, second = measure_stability(vectors, halves, group)
    assert describe_stability(stable) == "stable"
    assert describe_stability(first) == describe_stability(second) == "shaky"


def test_similarity_is_the_jaccard_index_with_the_most_similar_group():
    vectors = np.eye(4, dtype=np.float32)
    labels = np.array([0, 0, 1, 1])
    resampled_rows = []

    def regroup(rows, k, seed):
        resampled_rows.append(rows.argmax(axis=1))
        return np.zeros(len(rows), dtype=np.int64)

    similarities = measure_stability(vectors, labels, regroup, seed=3, resamples=1)
    members = labels[resampled_rows[0]]
    assert similarities == [float(np.mean(members == number)) for number in (0, 1)]


def test_resamples_hold_a_row_once_and_are_bounded(monkeypatch):
    monkeypatch.setattr(stability, "MAX_RESAMPLED_ROWS", 50)
    vectors, row_counts = blobs((300, 200)), []

    def regroup(rows, k, seed):
        row_counts.append(len(rows))
        assert len(np.unique(rows, axis=0)) == len(rows)
        return group(rows, k, seed)

    assert measure_stability(vectors, group(vectors, 2), regroup, resamples=4) == [1.0, 1.0]
    assert len(row_counts) == 4 and max(row_counts) <= 50


def test_one_group_is_stable_and_rows_in_no_group_belong_to_none():
    vectors = blobs((30, 20))
    assert measure_stability(vectors, np.zeros(50, dtype=np.int64), group) == [1.0]
    labels = group(vectors, 2)
    labels[:3] = -1

    def leaving_out(rows, k, seed):
        similarities = group(rows, k, seed)
        return np.where((rows[:, None] == vectors[:3]).all(axis=2).any(axis=1), -1, similarities)

    assert measure_stability(vectors, labels, leaving_out) == [1.0, 1.0]


def test_equal_vectors_need_no_more_groups_than_there_are():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0)
    similarities = measure_stability(vectors, np.array([0, 0, 1, 1, 2, 2]), group)
    assert all(0 < one <= 1 for one in similarities)


@pytest.mark.parametrize(
    ("value", "name"), [(1.0, "stable"), (0.75, "stable"), (0.7499, ""), (0.6, ""), (0.5999, "shaky"), (0.0, "shaky")]
)
def test_a_group_is_stable_from_0_75_and_shaky_below_0_6(value, name):
    assert describe_stability(value) == name


def test_cluster_reports_the_stability_of_each_group(make_model):
    texts = [f"text number {i}" for i in range(24)]
    vectors = np.pad(blobs((14, 10)), ((0, 0), (0, 24)))
    result = cluster(texts, "What?", InBedder(make_model("opt")), k=2, embeddings=vectors)
    assert result.stability == [1.0, 1.0]


def test_merged_groups_are_resampled_in_their_parts():
    vectors = blobs((20, 20, 20, 20))
    merged = np.array([0, 0, 1, 2])[group(vectors, 4)]
    assert min(measure_stability(vectors, merged, group)) < 0.75
    assert measure_stability(vectors, merged, group, initial_count=4) == [1.0, 1.0, 1.0]
