import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping import cluster_options
from inbedder.grouping.partition import partition as parts
from inbedder.grouping.partition.number_of_groups import Choice
from inbedder.grouping.partition.partition import group, make_regrouping, partition
from inbedder.grouping.partition.stability import measure_stability
from tests.conftest import blobs


@pytest.mark.parametrize("sizes", [(30, 20), (30, 20, 10), (20, 15, 10, 5, 4)])
def test_auto_finds_the_number_of_groups_and_numbers_them_by_size(sizes):
    labels = group(blobs(sizes))
    assert labels.tolist() == [i for i, size in enumerate(sizes) for _ in range(size)]


def test_a_given_k_is_kept_and_follows_its_seed():
    vectors = blobs((30, 20, 10))
    assert len(set(group(vectors, 5, seed=1).tolist())) == 5
    assert np.array_equal(group(vectors, 5, seed=1), group(vectors, 5, seed=1))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_or_equal_texts_are_grouped(count):
    assert group(np.ones((count, 4), dtype=np.float32) / 2).tolist() == [0] * count
    assert len(set(group(np.eye(count, 4, dtype=np.float32)).tolist())) <= count


@pytest.mark.parametrize("k", [0, -1, 61])
def test_a_k_that_does_not_fit_is_refused(k):
    with pytest.raises(InputError, match="k must be 'auto' or a number from 1 to 60"):
        group(blobs((30, 20, 10)), k)


def test_more_groups_than_distinct_vectors_are_refused():
    with pytest.raises(InputError, match="only 1 distinct"):
        group(np.ones((3, 4), dtype=np.float32), 2)


def test_auto_does_not_split_few_texts_into_many_groups():
    assert group(np.eye(60, dtype=np.float32)).max() < 6
    assert group(np.eye(8, dtype=np.float32)).max() == 1


def test_auto_makes_no_group_of_one_text_or_two(monkeypatch):
    vectors = np.concatenate([blobs((30, 20)), -blobs((2,))])
    monkeypatch.setattr(parts, "choose_number", lambda *_: Choice(4, 4, 4, 0.3, 5))
    groups = partition(vectors)
    assert groups.choice.k == 2 and len(np.unique(groups.labels)) == 2
    assert np.bincount(group(vectors, 3)).tolist() == [30, 20, 2]


def test_auto_survives_a_sample_that_misses_a_small_group(monkeypatch):
    monkeypatch.setattr("inbedder.grouping.partition.number_of_groups.MAX_SAMPLED_ROWS", 20)
    vectors = np.concatenate([blobs((200,)), -blobs((1,))])
    assert len(group(vectors)) == 201


def test_only_directions_count():
    vectors = blobs((30, 20, 10))
    longer = vectors * np.linspace(0.1, 9, 60, dtype=np.float32)[:, None]
    assert np.array_equal(group(longer, 3), group(vectors, 3))


def test_mini_batches_find_the_groups_of_k_means_in_mapped_vectors(monkeypatch, tmp_path):
    vectors = blobs((300, 200, 100))
    expected = group(vectors, 3)
    for name, value in (("MAX_FULL_ROWS", 500), ("BLOCK_ROWS", 64), ("INITIAL_SAMPLE_ROWS", 100)):
        monkeypatch.setattr(parts, name, value)
    np.save(tmp_path / "v.npy", 3 * vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert np.array_equal(group(mapped, 3), expected)
    assert np.array_equal(group(mapped, 3, seed=5), expected)


def test_mini_batches_choose_their_number_too(monkeypatch):
    monkeypatch.setattr(parts, "MAX_FULL_ROWS", 500)
    groups = partition(blobs((300, 200, 100)))
    assert groups.choice.k == 3
    assert np.bincount(groups.labels).tolist() == [300, 200, 100]


def test_a_tree_gives_groups():
    groups = partition(blobs((30, 20, 10)), 3, method="agglomerative")
    assert np.bincount(groups.labels).tolist() == [30, 20, 10]


def test_a_tree_takes_one_row_and_equal_rows():
    assert partition(np.ones((1, 4), dtype=np.float32), method="agglomerative").labels.tolist() == [0]
    assert partition(np.ones((9, 4), dtype=np.float32), method="agglomerative").labels.tolist() == [0] * 9


def test_rows_outside_dense_regions_fit_no_group():
    draw = np.random.default_rng(0)
    scattered = draw.normal(size=(15, 8)).astype(np.float32)
    groups = partition(np.concatenate([blobs((60, 40)), scattered]), method="hdbscan")
    assert groups.left_out == groups.labels.max() == 2
    assert set(groups.labels[:60]) <= {0, 2} and set(groups.labels[60:100]) <= {1, 2}
    assert (groups.labels[100:] == 2).mean() > 0.7
    assert partition(blobs((60, 40)), method="hdbscan").choice is None


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_rows_for_a_dense_region_are_left_out_or_one_group(count):
    groups = partition(np.eye(count, 8, dtype=np.float32), method="hdbscan")
    assert groups.labels.tolist() == [0] * count


def test_methods_refuse_what_they_cannot_do(monkeypatch):
    with pytest.raises(InputError, match=r"Unknown method 'umap'\. Choose one of: k-means, agglomerative, hdbscan"):
        partition(blobs((30, 20)), 2, method="umap")
    with pytest.raises(InputError, match="hdbscan finds the number of groups itself"):
        partition(blobs((30, 20)), 2, method="hdbscan")
    monkeypatch.setattr(cluster_options, "MAX_PAIRED_ROWS", 40)
    with pytest.raises(
        InputError, match=r"agglomerative compares all pairs of rows and takes at most 40 rows, not 50\. Choose k-means"
    ):
        partition(blobs((30, 20)), 2, method="agglomerative")


def test_small_dense_regions_are_stable_under_resampling():
    vectors = blobs((14, 13, 12))
    groups = partition(vectors, method="hdbscan")
    assert groups.labels.max() == 2 and groups.left_out is None
    assert min(measure_stability(vectors, groups.labels, make_regrouping("hdbscan", 39))) > 0.75


def test_hdbscan_finds_smaller_groups_with_a_smaller_min_size():
    vectors = np.concatenate([blobs((6, 5)), np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32)])
    assert partition(vectors, method="hdbscan").left_out == 0
    groups = partition(vectors, method="hdbscan", min_size=4)
    assert groups.left_out == 2 and len(set(groups.labels[:6].tolist())) == 1


@pytest.mark.parametrize(
    ("method", "min_size", "message"),
    [
        ("hdbscan", 1, "min_size must be a whole number of at least 2"),
        ("k-means", 5, r"k-means does not take min_size\. Leave it out, or choose hdbscan"),
    ],
)
def test_an_invalid_min_size_is_refused(method, min_size, message):
    with pytest.raises(InputError, match=message):
        partition(blobs((30, 20)), method=method, min_size=min_size)
