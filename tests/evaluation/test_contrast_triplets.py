import numpy as np
import pytest

from evaluation.tasks.contrast_triplets import ContrastScores, draw_triplets, score_triplets
from inbedder.errors import InputError

FIRST = ["book", "book", "film", "film", "book", "game"]
SECOND = ["good", "bad", "good", "bad", "good", "odd"]


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


def test_an_embedder_that_ignores_instructions_is_right_once_or_once_wrong():
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    texts = [str(i) for i in range(6)]
    triplets = draw_triplets(FIRST, SECOND, 300)
    scores = score_triplets(texts, triplets, lambda rows, _: vectors[[int(row) for row in rows]], ("A?", "B?"))
    assert scores.first + scores.second == pytest.approx(100)


def test_an_embedder_that_answers_is_always_right():
    def encode(rows, instruction):
        labels = FIRST if instruction == "A?" else SECOND
        names = sorted(set(labels))
        return np.eye(len(names), dtype=np.float32)[[names.index(labels[int(row)]) for row in rows]]

    scores = score_triplets([str(i) for i in range(6)], draw_triplets(FIRST, SECOND, 300), encode, ("A?", "B?"))
    assert (scores.first, scores.second, scores.harmonic_mean) == (100, 100, 100)


def test_the_harmonic_mean_is_exact():
    assert ContrastScores(80, 20).harmonic_mean == 32
    assert ContrastScores(0, 0).harmonic_mean == 0
