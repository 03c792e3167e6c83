import numpy as np

from inbedder.grouping.partition.group_shares import measure_group_shares
from tests.conftest import blobs

SIZES = (30, 20, 10)
LABELS = np.repeat(np.arange(3), SIZES)


def test_texts_of_clear_groups_belong_to_one():
    shares = measure_group_shares(blobs(SIZES), LABELS)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert shares.argmax(axis=1).tolist() == LABELS.tolist() and shares.max(axis=1).min() > 0.99


def test_a_text_between_two_groups_has_a_share_of_both():
    rng = np.random.default_rng(0)
    vectors = np.eye(2, 8)[np.arange(200) % 2] + rng.normal(scale=0.5, size=(200, 8))
    middle = np.eye(2, 8).sum(axis=0, keepdims=True)
    labels = (vectors[:, 1] > vectors[:, 0]).astype(np.int64)
    shares = measure_group_shares(np.concatenate([vectors, middle]).astype(np.float32), np.append(labels, -1))
    assert 0.2 < shares[-1, 0] < 0.8 and shares[:-1].max(axis=1).min() < 0.9


def test_a_single_group_has_all_of_every_text():
    assert measure_group_shares(blobs((5,)), np.zeros(5, dtype=np.int64)).tolist() == [[1.0]] * 5


def test_a_group_with_one_text_has_a_centre_in_both_halves():
    shares = measure_group_shares(blobs((9, 1)), np.repeat([0, 1], [9, 1]))
    assert np.isfinite(shares).all() and shares[-1].argmax() == 1
