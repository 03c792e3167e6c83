import numpy as np
import pytest

from inbedder import InBedder, cluster
from inbedder.errors import InputError
from inbedder.grouping.mean_wordings import encode_wordings, mean_over_wordings
from inbedder.vectors import unit

TEXTS = [f"text number {i} of {i % 5}" for i in range(20)]
WORDINGS = ["What is it?", "Which thing is meant?", "Name the thing."]


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_the_mean_is_that_of_the_vectors_of_length_one_and_the_nearest_wording_is_known():
    vectors = np.array([[[2, 0], [0, 3]], [[0, 5], [0, 1]], [[1, 0], [0, 1]]], dtype=np.float32)
    mean, nearest = mean_over_wordings(vectors)
    assert mean == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]))
    assert mean.dtype == np.float32
    assert nearest == 0


def test_cluster_groups_by_the_mean_over_wordings_and_answers_the_nearest(model):
    result = cluster(TEXTS, WORDINGS, model, k=3)
    vectors = np.stack([unit(model.encode(TEXTS, wording)) for wording in WORDINGS])
    assert result.embeddings == pytest.approx(vectors.mean(axis=0), abs=1e-6)
    assert result.wordings == WORDINGS
    assert result.instruction == encode_wordings(model, TEXTS, WORDINGS)[1]
    assert result.answers == model.answer(TEXTS, result.instruction)
    assert np.array_equal(result.labels, cluster(TEXTS, "What is it?", model, k=3, embeddings=result.embeddings).labels)
    assert cluster(TEXTS, "What is it?", model, k=3).wordings is None


def test_the_order_of_the_wordings_does_not_matter(model):
    forth, back = (cluster(TEXTS, wordings, model, k=3) for wordings in (WORDINGS, WORDINGS[::-1]))
    assert np.array_equal(forth.labels, back.labels)
    assert forth.instruction == back.instruction


@pytest.mark.parametrize(
    ("wordings", "told"),
    [
        ([], "0 wordings of the question: give at least 1"),
        (["What?", "Why?", "What?"], r"The wording 'What\?' is given twice"),
        (["What?", 3], "wordings: entry 1 is 3"),
        ({"What?"}, "wordings is a set"),
    ],
)
def test_wordings_without_a_meaning_are_refused_before_the_model_runs(model, monkeypatch, wordings, told):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match=told):
        cluster(TEXTS, wordings, model, k=2)


def test_known_vectors_are_of_one_wording(model):
    with pytest.raises(InputError, match="embeddings are of one instruction, and several wordings are given"):
        cluster(TEXTS, WORDINGS, model, k=2, embeddings=np.eye(20, dtype=np.float32))
