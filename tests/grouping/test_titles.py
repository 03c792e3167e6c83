from collections import Counter

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.grouping.namers import GroupContents
from inbedder.grouping.titles import TitleWriter


class Writer:
    """Answers with what it is told, and keeps what it was asked."""

    def __init__(self, *titles):
        self.titles, self.asked = list(titles), []

    def answer(self, texts, instruction):
        self.asked = list(texts)
        return self.titles


def groups_of(*groups):
    return [GroupContents([""] * len(answers), answers, np.zeros((len(answers), 2), dtype=np.float32), []) for answers in groups]


GROUPS = groups_of(["late delivery", "late delivery", "slow courier", ""], ["refund", "money back"])


def test_the_model_reads_the_most_frequent_answers_first():
    writer = Writer("late delivery", "refund")
    assert TitleWriter(writer)(GROUPS) == ["late delivery", "refund"]
    assert writer.asked == ["late delivery; slow courier", "refund; money back"]


def test_words_that_no_answer_says_are_dropped():
    assert TitleWriter(Writer("Late aeroplane courier", "money Money laundering"))(GROUPS) == ["Late courier", "money"]


def test_a_title_without_a_known_word_is_the_most_frequent_answer():
    assert TitleWriter(Writer("nonsense", ""))(GROUPS) == ["late delivery", "refund"]


def test_a_group_without_answers_has_no_title():
    assert TitleWriter(Writer("a", "b"))(groups_of([""], ["b"])) == ["", "b"]


@pytest.mark.parametrize("count", [1, 3])
def test_every_word_of_a_title_stands_in_an_answer(count, make_model):
    answers = ["red apple", "green pear", "blue plum"][:count]
    titles = TitleWriter(InBedder(make_model("opt")))(groups_of(answers))
    known = Counter(word for answer in answers for word in answer.split())
    assert all(word in known for word in titles[0].split())
