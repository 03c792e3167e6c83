import numpy as np
import pytest

from inbedder import InBedder, cluster
from inbedder.errors import InputError
from inbedder.grouping.prepare.mean_wordings import average_wordings, encode_question
from inbedder.vectors.vectors import normalize_vectors

TEXTS = [f"text number {i} of {i % 5}" for i in range(20)]
WORDINGS = ["What is it?", "Which thing is meant?", "Name the thing."]


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_the_mean_is_over_vectors_of_length_one_with_its_nearest_wording():
    vectors = np.array([[[2, 0], [0, 3]], [[0, 5], [0, 1]], [[1, 0], [0, 1]]], dtype=np.float32)
    mean, nearest = average_wordings(vectors)
    assert mean == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]))
    assert mean.dtype == np.float32
    assert nearest == 0


def test_cluster_groups_by_the_mean_over_wordings_and_answers_the_nearest(model):
    result = cluster(TEXTS, WORDINGS, model, k=3)
    vectors = np.stack([normalize_vectors(model.encode(TEXTS, wording)) for wording in WORDINGS])
    assert result.embeddings == pytest.approx(vectors.mean(axis=0), abs=1e-6)
    assert result.wordings == WORDINGS
    assert result.instruction == encode_question(model, TEXTS, WORDINGS)[1]
    assert result.answers == model.answer(TEXTS, result.instruction)
    assert np.array_equal(result.labels, cluster(TEXTS, "What is it?", model, k=3, embeddings=result.embeddings).labels)
    assert cluster(TEXTS, "What is it?", model, k=3).wordings is None


def test_the_order_of_the_wordings_does_not_matter(model):
    forth, back = (cluster(TEXTS, wordings, model, k=3) for wordings in (WORDINGS, WORDINGS[::-1]))
    assert np.array_equal(forth.labels, back.labels)
    assert forth.instruction == back.instruction


@pytest.mark.parametrize(
    ("wordings", "message"),
    [
        ([], r"The question has 0 wordings\. Give at least 1"),
        (["What?", "Why?", "What?"], r"The wording 'What\?' occurs twice"),
        (["What?", 3], "wordings: entry 1 is 3"),
        ({"What?"}, "wordings is a set"),
    ],
)
def test_invalid_wordings_are_refused_before_the_model_runs(model, monkeypatch, wordings, message):
    monkeypatch.setattr(model.backbone, "embed", None)
    with pytest.raises(InputError, match=message):
        cluster(TEXTS, wordings, model, k=2)


def test_embeddings_with_several_wordings_are_refused(model):
    with pytest.raises(InputError, match="embeddings belong to one instruction, but there are several wordings"):
        cluster(TEXTS, WORDINGS, model, k=2, embeddings=np.eye(20, dtype=np.float32))
