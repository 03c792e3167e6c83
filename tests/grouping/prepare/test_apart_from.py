import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InbedderError
from inbedder.grouping.clustering import cluster as cluster_texts
from inbedder.grouping.prepare.apart_from import find_group_directions, remove_directions
from tests.conftest import with_answers

AXES = np.eye(8, dtype=np.float32)


def two_questions(count=60):
    """Vectors that differ strongly by a second question (axis 0) and weakly by the first (axes 1 and 2)."""
    numbers = np.arange(count)
    noise = np.random.default_rng(0).normal(scale=0.02, size=(count, 8))
    vectors = AXES[7] + np.where(numbers % 2 == 0, 1, -1)[:, None] * AXES[0] + 0.4 * AXES[1 + numbers % 3 % 2]
    return (vectors + noise).astype(np.float32), numbers % 2, numbers % 3 % 2


def test_no_difference_of_the_removed_groups_is_left():
    vectors, by_second, _ = two_questions()
    directions = find_group_directions(vectors, by_second)
    assert directions.shape == (1, 8)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-5)
    remaining = remove_directions(vectors, directions)
    np.testing.assert_allclose(np.linalg.norm(remaining, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(remaining @ directions.T, 0, atol=1e-6)


def test_three_groups_span_two_directions_and_one_group_none():
    labels = np.arange(30) % 3
    assert find_group_directions(AXES[labels] + AXES[7], labels).shape == (2, 8)
    assert find_group_directions(AXES[labels], np.zeros(30, dtype=np.int64)).shape == (0, 8)
    vectors = AXES[labels]
    np.testing.assert_allclose(remove_directions(vectors, np.empty((0, 8), np.float32)), vectors, atol=1e-6)


@pytest.fixture
def model(make_model, monkeypatch):
    """A model whose vectors are those of ``two_questions``."""
    model = InBedder(make_model("opt"))
    vectors, by_second, _ = two_questions()
    answers = {"Which?": vectors, "Good?": (AXES[by_second] + 0.01 * vectors).astype(np.float32)}

    def encode(_texts, question=None, **_):
        return np.pad(answers[question], ((0, 0), (0, 24)))

    monkeypatch.setattr(model, "encode", with_answers(model, encode))
    return model


def test_groups_follow_the_second_question_only_if_it_is_not_removed(model):
    texts = [f"text {i}" for i in range(60)]
    _, by_second, by_first = two_questions()
    assert len({*zip(cluster(texts, "Which?", model, k=2).labels, by_second, strict=True)}) == 2
    result = cluster(texts, "Which?", model, k=2, apart_from="Good?")
    assert len({*zip(result.labels, by_first, strict=True)}) == 2
    assert result.notes[-1] == "Grouped apart from 'Good?': what its 2 groups say is left out."
    assert result.removed_directions.shape == (1, 32)


def test_a_saved_grouping_removes_the_same_directions(model, tmp_path):
    texts = [f"text {i}" for i in range(60)]
    result = cluster(texts, "Which?", model, k=2, apart_from="Good?")
    result.save(tmp_path / "groups")
    grouping = Grouping.load(tmp_path / "groups", model)
    np.testing.assert_array_equal(grouping.removed_directions, result.removed_directions)
    assert grouping.assign(texts).labels.tolist() == result.labels.tolist()
    cluster(texts, "Which?", model, k=2).save(tmp_path / "plain")
    assert Grouping.load(tmp_path / "plain", model).removed_directions is None


def test_the_other_question_is_a_string(make_model):
    with pytest.raises(InbedderError, match="apart_from"):
        cluster_texts(["a", "b"], "What?", InBedder(make_model("opt")), k=2, apart_from=["Good?"])
