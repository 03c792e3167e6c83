from collections import Counter

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.grouping.names.group_contents import GroupContents
from inbedder.grouping.names.titles import TitleWriter


class Writer:
    """A model that returns given titles and records its prompts."""

    def __init__(self, *titles):
        self.titles, self.prompts = list(titles), []

    def answer(self, texts, instruction, *, min_confidence):
        assert min_confidence == 0
        self.prompts = list(texts)
        return self.titles


def groups_of(*groups):
    return [GroupContents([""] * len(answers), answers, np.zeros((len(answers), 2), dtype=np.float32), []) for answers in groups]


GROUPS = groups_of(["late delivery", "late delivery", "slow courier", ""], ["refund", "money back"])


def test_the_model_reads_the_most_frequent_answers_first():
    writer = Writer("late delivery", "refund")
    assert TitleWriter(writer)(GROUPS) == ["late delivery", "refund"]
    assert writer.prompts == ["late delivery; slow courier", "refund; money back"]


def test_words_that_occur_in_no_answer_are_dropped():
    assert TitleWriter(Writer("Late aeroplane courier", "money Money laundering"))(GROUPS) == ["Late courier", "money"]


def test_a_title_without_a_known_word_is_the_most_frequent_answer():
    assert TitleWriter(Writer("nonsense", ""))(GROUPS) == ["late delivery", "refund"]


def test_a_group_without_answers_has_no_title():
    assert TitleWriter(Writer("a", "b"))(groups_of([""], ["b"])) == ["", "b"]


@pytest.mark.parametrize("count", [1, 3])
def test_every_word_of_a_title_occurs_in_an_answer(count, make_model):
    answers = ["red apple", "green pear", "blue plum"][:count]
    titles = TitleWriter(InBedder(make_model("opt")))(groups_of(answers))
    answer_words = Counter(word for answer in answers for word in answer.split())
    assert all(word in answer_words for word in titles[0].split())
