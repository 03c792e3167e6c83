import json
from pathlib import Path

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping.describe.explain import compute_mean_differences, find_central_texts, find_keywords, measure_agreement
from tests.conftest import GOLDEN

ROOT = Path(__file__).parents[3]
GOLDEN_KEYWORDS = json.loads((GOLDEN / "keywords.json").read_text(encoding="utf-8"))["runs"]
LABELS = np.array([0, 0, 0, 1, 1])


def test_words_of_texts_stand_out_if_other_clusters_lack_them():
    texts = ["great food", "great food menu", "great pizza", "great service", "great staff service"]
    first, second = find_keywords(texts, LABELS, weighting="standing-out")
    assert first[0] == "food"
    assert second[0] == "service"
    assert "great" not in first + second


def test_of_texts_negations_are_keywords_and_stopwords_are_not():
    first, second = find_keywords(["no", "no the", "not of", "yes", "yes the"], LABELS, weighting="standing-out")
    assert first == ["no", "not"]
    assert second == ["yes"]


@pytest.mark.parametrize("weighting", ["paper", "standing-out"])
@pytest.mark.parametrize("answers", [["", "", "", "", ""], ["😀", "...", "", "a", "!"]])
def test_answers_without_words_give_no_keywords(answers, weighting):
    assert find_keywords(answers, LABELS, weighting=weighting) == [[], []]


def test_keywords_are_ranked_by_tf_idf_minus_its_mean_over_the_clusters():
    first, second = find_keywords(["the cat", "the cat", "a cat", "the dog", "no dog the"], LABELS, top=3)
    assert (first, second) == (["cat"], ["dog", "no", "the"])  # 1-letter words are none; stopwords are words
    assert find_keywords(["cats", "dogs", "", "", ""], LABELS, top=9) == [["cats", "dogs"], []]


@pytest.mark.parametrize("run", GOLDEN_KEYWORDS, ids=lambda run: run["question"])
def test_keywords_equal_those_of_the_authors_code_up_to_ties(run):
    keywords = find_keywords(run["answers"], np.array(run["labels"]))
    assert len(keywords) == len(run["keywords"])
    for words, expected in zip(keywords, run["keywords"], strict=True):
        scores = dict(expected)
        telling = [score for score in scores.values() if score > 0][:8]
        assert [scores[word] for word in words] == pytest.approx(telling, abs=1e-8)


@pytest.mark.parametrize("run", GOLDEN_KEYWORDS, ids=lambda run: run["question"])
def test_entropies_equal_those_of_the_authors_code(run):
    assert measure_agreement(np.array(run["labels"]), run["given"]).entropy == pytest.approx(run["entropy"], abs=1e-8)


def test_the_committed_bench_of_the_authors_own_runs_reaches_its_goal():
    bench = json.loads((ROOT / "scripts" / "results" / "authors_keywords.json").read_text(encoding="utf-8"))
    assert len(bench["runs"]) == 7
    assert all(run["paper"] >= 0.95 > run["standing-out"] for run in bench["runs"].values())
    assert bench["greatest_difference_of_entropies"] < 1e-9


def test_an_unknown_weighting_of_keywords_is_refused():
    with pytest.raises(InputError, match="Choose one of: paper, standing-out"):
        find_keywords(["cats"], np.array([0]), weighting="loud")


def test_one_cluster_still_has_keywords():
    assert find_keywords(["cats", "dogs"], np.array([0, 0])) == [["cats", "dogs"]]


def test_central_texts_are_closest_to_the_mean_and_never_repeat():
    vectors = np.array([[1, 0], [0.6, 0.8], [0.8, 0.6], [0, 1], [0, 1]], dtype=np.float32)
    texts = ["a", "b", "c", "d", "d "]
    assert find_central_texts(texts, vectors, LABELS, top=2) == [[2, 1], [3]]


def test_mean_differences_are_cluster_means_minus_the_corpus_mean():
    vectors = np.array([[3.0], [3.0], [3.0], [8.0], [8.0]], dtype=np.float32)
    assert compute_mean_differences(vectors, LABELS).tolist() == [[-2.0], [3.0]]


def test_agreement_gives_composition_entropy_in_bits_and_v_measure():
    result = measure_agreement(LABELS, ["x", "x", "y", "y", None])
    assert result.composition == [{"x": 2, "y": 1}, {"y": 1, "(no label)": 1}]
    assert result.entropy == pytest.approx([0.9182958, 0.0])
    assert result.unlabelled == 1
    assert measure_agreement(LABELS, ["a", "a", "a", "b", "b"]).v_measure == pytest.approx(1.0)
    assert measure_agreement(LABELS, ["a", "a", "a", "b", "b"]).entropy == [0.0, 0.0]


@pytest.mark.parametrize("blank", [None, float("nan"), "", "  "])
def test_texts_without_a_label_count_in_no_measure(blank):
    result = measure_agreement(LABELS, ["a", blank, "a", "b", "b"])
    assert result.composition == [{"a": 2, "(no label)": 1}, {"b": 2}]
    assert (result.v_measure, result.entropy, result.unlabelled) == (1.0, [0.0, 0.0], 1)
    nothing = measure_agreement(LABELS, [blank] * 5)
    assert nothing.composition == [{"(no label)": 3}, {"(no label)": 2}]
    assert (nothing.v_measure, nothing.entropy, nothing.unlabelled) == (0.0, [0.0, 0.0], 5)


def test_keywords_leave_out_the_stopwords_of_each_texts_language():
    texts = [
        "Der Kaffee ist kalt und die Tasse auch",
        "El café está frío y la taza también",
        "荷物は二日遅れて届きました",
        "荷物が箱の中で壊れていました",
    ]
    first, second = find_keywords(texts, np.array([0, 0, 1, 1]), weighting="standing-out")
    assert {"kaffee", "café", "kalt", "tasse"} <= set(first)
    assert not {"der", "ist", "und", "el", "está", "la"} & set(first)
    assert second[0] == "荷物"
