import numpy as np
import pytest

from inbedder.grouping.partition.between import find_second_groups
from tests.conftest import blobs

SIZES = (30, 20)
LABELS = np.repeat(np.arange(2), SIZES)


def make_vectors():
    """Two groups that touch, and a text in the middle of their centres that is in the first."""
    vectors = np.eye(2, 8)[LABELS] + np.random.default_rng(0).normal(scale=0.4, size=(50, 8))
    middle = vectors[:30].mean(axis=0) + vectors[30:].mean(axis=0)
    return np.concatenate([vectors, middle[None]]).astype(np.float32), np.append(LABELS, 0)


@pytest.mark.parametrize(("answer", "second"), [("a joy", 1), ("deep Anger", -1), ("tea", -1), ("", -1)])
def test_a_text_with_the_answer_of_a_second_group_lies_between(answer, second):
    vectors, labels = make_vectors()
    answers = ["anger"] * 30 + ["joy"] * 20 + [answer]
    assert find_second_groups(vectors, labels, answers)[-1] == second


def test_a_text_amid_its_group_lies_in_it_whatever_its_answer():
    answers = ["joy", *["anger"] * 29, *["joy"] * 20]
    assert find_second_groups(blobs(SIZES), LABELS, answers).max() == -1


@pytest.mark.parametrize("labels", [np.zeros(50, dtype=np.int64), np.full(50, -1)])
def test_without_two_groups_no_text_lies_between_them(labels):
    assert find_second_groups(blobs(SIZES), labels, ["joy"] * 50).tolist() == [-1] * 50
