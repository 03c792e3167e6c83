from collections import Counter

import numpy as np
import pytest

from inbedder import InBedder, cluster
from inbedder.grouping.titles import group_titles


class Writer:
    """Answers with what it is told, and keeps what it was asked."""

    def __init__(self, *titles):
        self.titles, self.asked = list(titles), []

    def answer(self, texts, instruction):
        self.asked = list(texts)
        return self.titles


ANSWERS = ["late delivery", "late delivery", "slow courier", "", "refund", "money back"]
LABELS = np.array([0, 0, 0, 0, 1, 1])


def test_the_model_reads_the_most_frequent_answers_first():
    writer = Writer("late delivery", "refund")
    assert group_titles(writer, ANSWERS, LABELS) == ["late delivery", "refund"]
    assert writer.asked == ["late delivery; slow courier", "refund; money back"]


def test_words_that_no_answer_says_are_dropped():
    assert group_titles(Writer("Late aeroplane courier", "money Money laundering"), ANSWERS, LABELS) == ["Late courier", "money"]


def test_a_title_without_a_known_word_is_the_most_frequent_answer():
    assert group_titles(Writer("nonsense", ""), ANSWERS, LABELS) == ["late delivery", "refund"]


def test_titles_differ():
    titles = group_titles(Writer("refund", "refund", "refund"), ["refund", "refund", "refund late"], np.array([0, 1, 2]))
    assert len(set(titles)) == 3
    assert titles[2] == "refund (refund late)"


def test_a_group_without_answers_has_no_title():
    assert group_titles(Writer("a", "b"), ["", "b"], np.array([0, 1])) == ["", "b"]


def test_titles_name_the_groups_and_keywords_stay(make_model):
    model = InBedder(make_model("opt"))
    texts = [f"text number {i}" for i in range(12)]
    result = cluster(texts, "What?", model=model, k=2, titles=True)
    assert len(result.titles) == 2
    assert all(name == title for name, title in zip(result.names, result.titles, strict=True) if title)
    assert result.keywords == cluster(texts, "What?", model=model, k=2).keywords


@pytest.mark.parametrize("count", [0, 3])
def test_every_word_of_a_title_stands_in_an_answer(count, make_model):
    answers = ["red apple", "green pear", "blue plum"][:count] or ["x"]
    titles = group_titles(InBedder(make_model("opt")), answers, np.zeros(len(answers), dtype=int))
    known = Counter(word for answer in answers for word in answer.split())
    assert all(word in known for word in titles[0].split())
