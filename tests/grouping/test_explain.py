import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping.explain import agreement, central_texts, keywords, mean_differences

LABELS = np.array([0, 0, 0, 1, 1])


def test_keywords_are_words_that_stand_out():
    answers = ["great food", "great food menu", "great pizza", "great service", "great staff service"]
    first, second = keywords(answers, LABELS)
    assert first[0] == "food"
    assert second[0] == "service"
    assert "great" not in first + second


def test_negations_are_keywords_and_stopwords_are_not():
    first, second = keywords(["no", "no the", "not of", "yes", "yes the"], LABELS)
    assert first == ["no", "not"]
    assert second == ["yes"]


@pytest.mark.parametrize("answers", [["", "", "", "", ""], ["😀", "...", "the", "a", "!"]])
def test_answers_without_words_give_no_keywords(answers):
    assert keywords(answers, LABELS) == [[], []]


def test_keywords_of_the_paper_are_ranked_by_plain_tf_idf_minus_its_mean_over_all_clusters():
    first, second = keywords(["the cat", "the cat", "a cat", "the dog", "no dog the"], LABELS, top=3, weighting="paper")
    assert (first, second) == (["cat", "the", "no"], ["dog", "no", "the"])  # 1-letter words are none; stopwords are words


def test_keywords_of_the_paper_fill_the_list_and_a_cluster_without_words_has_none():
    assert keywords(["cats", "dogs", "", "", ""], LABELS, top=9, weighting="paper") == [["cats", "dogs"], []]
    assert keywords(["", "a"], np.array([0, 1]), weighting="paper") == [[], []]


def test_an_unknown_weighting_of_keywords_is_refused():
    with pytest.raises(InputError, match="Choose standing-out or paper"):
        keywords(["cats"], np.array([0]), weighting="loud")


def test_one_cluster_still_has_keywords():
    assert keywords(["cats", "dogs"], np.array([0, 0])) == [["cats", "dogs"]]


def test_central_texts_are_closest_to_the_mean_and_never_repeat():
    vectors = np.array([[1, 0], [0.6, 0.8], [0.8, 0.6], [0, 1], [0, 1]], dtype=np.float32)
    texts = ["a", "b", "c", "d", "d "]
    assert central_texts(texts, vectors, LABELS, top=2) == [[2, 1], [3]]


def test_mean_differences_are_cluster_means_minus_the_corpus_mean():
    vectors = np.array([[3.0], [3.0], [3.0], [8.0], [8.0]], dtype=np.float32)
    assert mean_differences(vectors, LABELS).tolist() == [[-2.0], [3.0]]


def test_agreement_gives_composition_entropy_in_bits_and_v_measure():
    result = agreement(LABELS, ["x", "x", "y", "y", None])
    assert result.composition == [{"x": 2, "y": 1}, {"y": 1, "(no label)": 1}]
    assert result.entropy == pytest.approx([0.9182958, 0.0])
    assert result.unlabelled == 1
    assert agreement(LABELS, ["a", "a", "a", "b", "b"]).v_measure == pytest.approx(1.0)
    assert agreement(LABELS, ["a", "a", "a", "b", "b"]).entropy == [0.0, 0.0]


@pytest.mark.parametrize("blank", [None, float("nan"), "", "  "])
def test_texts_without_a_label_are_in_no_measure(blank):
    result = agreement(LABELS, ["a", blank, "a", "b", "b"])
    assert result.composition == [{"a": 2, "(no label)": 1}, {"b": 2}]
    assert (result.v_measure, result.entropy, result.unlabelled) == (1.0, [0.0, 0.0], 1)
    nothing = agreement(LABELS, [blank] * 5)
    assert nothing.composition == [{"(no label)": 3}, {"(no label)": 2}]
    assert (nothing.v_measure, nothing.entropy, nothing.unlabelled) == (0.0, [0.0, 0.0], 5)
