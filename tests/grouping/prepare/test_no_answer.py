import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InbedderError
from inbedder.grouping.prepare.no_answer import REFERENCE_LINES, find_invented_groups, find_unanswered
from tests.conftest import with_answers

AXES = np.eye(8, dtype=np.float32)


def reference_vectors():
    """An empty text on axis 7, and lines without content at rising distances from it."""
    return np.stack([AXES[7], *(AXES[7] + 0.05 * i * AXES[6] for i in range(1, len(REFERENCE_LINES)))])


def test_the_limit_lies_between_the_corpus_and_lines_without_content():
    cosines = np.array([0.0, 0.2, 0.3, 0.7, 0.8])  # the median is 0.3, that of the lines 0.95
    vectors = cosines[:, None] * AXES[7] + np.sqrt(1 - cosines**2)[:, None] * AXES[0]
    assert find_unanswered(vectors.astype(np.float32), reference_vectors()).tolist() == [False, False, False, False, True]
    assert find_unanswered(np.tile(AXES[7], (3, 1)), reference_vectors()).all()


@pytest.fixture
def model(make_model, monkeypatch):
    """A model to which every third text says nothing."""
    model = InBedder(make_model("opt"))
    of_reference = dict(zip(REFERENCE_LINES, reference_vectors(), strict=True))

    def encode(texts, question=None, **_):
        rows = [of_reference[text] if text in of_reference else read(text) for text in texts]
        return np.pad(np.stack(rows), ((0, 0), (0, 24))).astype(np.float32)

    def read(text):
        number = int(text.split()[-1])
        noise = 0.02 * np.random.default_rng(number).normal(size=8)
        return noise + (AXES[7] if number % 3 == 0 else AXES[number % 3] + 0.3 * AXES[7])

    monkeypatch.setattr(model, "encode", with_answers(model, encode))
    monkeypatch.setattr(model, "encode_many", lambda texts, questions, **_: np.stack([encode(texts) for _ in questions]))
    return model


TEXTS = [f"text {i}" for i in range(60)]


def test_texts_without_an_answer_form_the_last_group(model):
    result = cluster(TEXTS, "Which?", model, k=2, no_answer=True)
    assert result.left_out == 2 and result.sizes == [20, 20, 20] and result.names[2] == "none of these"
    assert np.flatnonzero(result.labels == 2).tolist() == list(range(0, 60, 3))
    assert result.stability[2] == 0 and min(result.stability[:2]) > 0.9
    assert any(note.startswith("20 of 60 texts are in 'none of these'") for note in result.notes)
    assert cluster(TEXTS, "Which?", model, k=2).left_out is None


@pytest.mark.parametrize("method", ["agglomerative", "hdbscan"])
def test_other_methods_leave_them_out_too(model, method):
    result = cluster(TEXTS, "Which?", model, method=method, no_answer=True)
    assert np.flatnonzero(result.labels == result.left_out).tolist() == list(range(0, 60, 3))


def test_a_saved_grouping_keeps_them(model, tmp_path):
    result = cluster(TEXTS, "Which?", model, k=2, no_answer=True)
    result.save(tmp_path / "groups")
    assert len(Grouping.load(tmp_path / "groups", model).groups) == 2


def test_several_wordings_are_asked_of_the_reference_lines(model):
    result = cluster(TEXTS, ["Which?", "Which one?"], model, k=2, no_answer=True)
    assert np.flatnonzero(result.labels == result.left_out).tolist() == list(range(0, 60, 3))


def test_a_question_and_an_answer_are_needed(model):
    with pytest.raises(InbedderError, match="needs a question"):
        cluster(TEXTS, None, model, k=2, no_answer=True)
    with pytest.raises(InbedderError, match="No text gives an answer"):
        cluster(TEXTS[::3], "Which?", model, k=2, no_answer=True)


WORDS = ["the cats sleep", "a cat", "oh no", "oh", "dogs bark", "my dog"]
ANSWERS = ["cat", "cats", "account", "app chat", "dog", "dogs"]
LABELS = np.array([0, 0, 1, 1, 2, 2])
NEAR_EMPTY = np.stack([AXES[0], AXES[0], AXES[7], AXES[7], AXES[1], AXES[1]])
"""Vectors of the texts: those of the second group are near the empty text."""


def test_answers_that_no_text_holds_are_invented():
    assert find_invented_groups(WORDS, ANSWERS, NEAR_EMPTY, LABELS, reference_vectors) == [1]
    assert find_invented_groups(WORDS, [""] * 6, NEAR_EMPTY, LABELS, reference_vectors) == []
    assert find_invented_groups(WORDS, ANSWERS, NEAR_EMPTY, np.where(LABELS == 1, -1, LABELS), reference_vectors) == []
    assert find_invented_groups(WORDS, ANSWERS, NEAR_EMPTY[:, :4], LABELS, reference_vectors) == []  # of another model


def test_a_group_whose_texts_say_something_is_not_invented():
    far = np.roll(NEAR_EMPTY, 2, axis=0)
    assert find_invented_groups(WORDS, ANSWERS, far, LABELS, reference_vectors) == []


def test_answers_that_nobody_writes_are_not_invented():
    feelings = ["joy", "joy", "anger", "anger", "joy", "dog"]  # one of six is in its text
    assert find_invented_groups(WORDS, feelings, NEAR_EMPTY, LABELS, lambda: pytest.fail("not needed")) == []


def test_a_group_with_invented_answers_is_noted(model, monkeypatch):
    texts = [f"text {i}" for i in range(60)]
    monkeypatch.setattr(model, "answer", lambda rows, *_, **__: ["nothing" if int(row[5:]) % 3 == 0 else row for row in rows])
    result = cluster(texts, "Which?", model, k=3)
    invented = int(result.labels[0])
    assert result.notes[-1].startswith(f"Group {invented + 1} may be invented:")
