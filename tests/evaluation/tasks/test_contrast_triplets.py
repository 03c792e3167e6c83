import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder_evaluation.tasks.contrast_triplets import ContrastTriplets, draw_triplets
from inbedder_evaluation.tasks.corpus import make_corpus

FIRST = ["book", "book", "film", "film", "book", "game"]
SECOND = ["good", "bad", "good", "bad", "good", "odd"]


@pytest.fixture
def task():
    rows = [{"text": str(i), "kind": a, "mood": b} for i, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))]
    return ContrastTriplets(make_corpus("toy", rows, {"kind": "A?", "mood": "B?"}), count=300)


def test_each_triplet_shares_one_criterion_a_side():
    for anchor, same_first, same_second in draw_triplets(FIRST, SECOND, 200):
        assert FIRST[anchor] == FIRST[same_first] and SECOND[anchor] != SECOND[same_first]
        assert SECOND[anchor] == SECOND[same_second] and FIRST[anchor] != FIRST[same_second]


def test_rows_without_counterparts_are_never_anchors():
    assert 5 not in draw_triplets(FIRST, SECOND, 200)[:, 0]


def test_the_draw_follows_its_seed():
    assert np.array_equal(draw_triplets(FIRST, SECOND, 50, 1), draw_triplets(FIRST, SECOND, 50, 1))
    assert not np.array_equal(draw_triplets(FIRST, SECOND, 50, 1), draw_triplets(FIRST, SECOND, 50, 2))


def test_criteria_that_never_vary_apart_are_refused():
    with pytest.raises(InputError, match="each criterion must vary"):
        draw_triplets(["a", "b"], ["x", "y"])


def test_ignored_instructions_win_one_criterion_and_lose_the_other(task):
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    scores = task.evaluate(lambda texts, _: vectors[[int(text) for text in texts]])
    assert scores["kind"] + scores["mood"] == pytest.approx(100)
    assert scores["harmonic_mean"] == pytest.approx(2 * scores["kind"] * scores["mood"] / 100)


def test_one_vector_for_every_text_succeeds_never(task):
    assert task.evaluate(lambda texts, _: np.ones((len(texts), 3), dtype=np.float32))["harmonic_mean"] == 0


def test_an_embedder_that_answers_is_always_right(task):
    def encode(texts, instruction):
        labels = FIRST if instruction == "A?" else SECOND
        names = sorted(set(labels))
        return np.eye(len(names), dtype=np.float32)[[names.index(labels[int(text)]) for text in texts]]

    assert task.evaluate(encode) == {"kind": 100, "mood": 100, "harmonic_mean": 100}
    assert task.get_first_input() == ("0", "A?")
