from collections import Counter

import numpy as np
import pytest

from inbedder.grouping.describe.deduplicate import (
    describe_duplicate_questions,
    find_duplicate_groups,
    measure_overlap,
    merge_duplicate_groups,
)
from tests.grouping.report.test_page import grouping


def make_groups(*groups):
    """Make answers and labels from counts of answers per group."""
    answers = [answer for counts in groups for answer, count in counts.items() for _ in range(count)]
    return answers, np.repeat(np.arange(len(groups)), [sum(counts.values()) for counts in groups])


def test_the_overlap_is_the_sum_of_the_smaller_shares():
    assert measure_overlap(Counter(a=4), Counter(a=2)) == 1
    assert measure_overlap(Counter(a=1), Counter(b=1)) == 0
    assert measure_overlap(Counter(a=3, b=1), Counter(a=1, b=1)) == pytest.approx(0.75)


def test_nine_groups_of_two_answers_are_two():
    moods = [{"positive": 10}, {"Positive ": 9}, {"negative": 8}] * 3
    answers, labels = make_groups(*moods)
    assert find_duplicate_groups(answers, labels) == [[0, 1, 3, 4, 6, 7], [2, 5, 8]]
    merged, _, notes = merge_duplicate_groups(answers, labels, merge=True)
    assert np.bincount(merged).tolist() == [57, 24]
    assert notes == [
        "9 groups became 2: groups with mostly the same answers ('positive', 'negative') were merged. Ask for 9 groups to "
        "keep them apart."
    ]
    unmerged, _, notes = merge_duplicate_groups(answers, labels, merge=False)
    assert (unmerged == labels).all()
    assert [note.split(":")[0] for note in notes] == [
        "Groups 1, 2, 4, 5, 7 and 8 hardly differ in their answers (mostly 'positive')",
        "Groups 3, 6 and 9 hardly differ in their answers (mostly 'negative')",
    ]


def test_groups_that_share_few_answers_are_not_merged():
    answers, labels = make_groups({"food": 6, "service": 4}, {"food": 3, "price": 7}, {"food": 1, "place": 9})
    assert find_duplicate_groups(answers, labels) == []
    unmerged, _, notes = merge_duplicate_groups(answers, labels, merge=True)
    assert unmerged is labels
    assert notes == []


def test_the_first_words_of_answers_count_most_and_stopwords_nothing():
    answers, labels = make_groups({"negative positive": 2, "the negative": 8}, {"negative": 5}, {"positive negative": 5})
    assert find_duplicate_groups(answers, labels) == [[0, 1]]
    answers, labels = make_groups({"the": 5}, {"the": 5}, {"of": 5})
    assert find_duplicate_groups(answers, labels) == [[0, 1]]


def test_groups_with_one_answer_in_all_stay_apart():
    answers, labels = make_groups({"none": 9}, {"none": 8}, {"None": 7})
    unmerged, _, notes = merge_duplicate_groups(answers, labels, merge=True)
    assert unmerged is labels
    assert notes == ["The groups hardly differ in their answers (mostly 'none'): the question may not fit these texts."]


def test_merging_does_not_go_from_neighbour_to_neighbour():
    answers, labels = make_groups(*({"a": 10 - i, "b": i} for i in range(0, 11, 2)))
    sets = find_duplicate_groups(answers, labels)
    assert sets
    assert all(0 not in groups or 5 not in groups for groups in sets)


def test_texts_without_an_answer_or_a_group_are_not_compared():
    answers, labels = make_groups({"": 50, "a": 2}, {"": 50, "a": 2}, {"a": 20})
    assert find_duplicate_groups(answers, labels) == [[0, 1, 2]]
    answers, labels = make_groups({"": 5}, {"": 5})
    assert find_duplicate_groups(answers, labels) == []
    answers, labels = make_groups({"a": 10}, {"a": 20}, {"b": 5})
    labels[:3] = 3
    merged, left_out, _ = merge_duplicate_groups(answers, labels, merge=True, left_out=3)
    assert merged.tolist() == [2] * 3 + [0] * 27 + [1] * 5
    assert left_out == 2
    assert merge_duplicate_groups(answers, labels, merge=False, left_out=3)[1] == 3


def test_a_question_with_the_answers_to_another_is_reported():
    moods = ["good", "bad"] * 10
    first = grouping([0, 1] * 10, answers=moods)
    second = grouping([0, 1] * 10, answers=[mood.title() for mood in moods[:18]] + ["fast", "slow"], instruction="How fast?")
    other_result = grouping([0, 1] * 10, answers=["food", "staff", "food", "food"] * 5, instruction="Who?")
    (note,) = describe_duplicate_questions([first, second, other_result])
    assert note.startswith("90% of the answers to 'How fast?' equal those to 'What is it?'")


def test_answers_that_agree_only_by_chance_are_not_reported():
    unmerged = grouping([0] * 10, answers=["yes"] * 9 + ["no"])
    other_result = grouping([0] * 10, answers=["no"] + ["yes"] * 9, instruction="Why?")
    assert describe_duplicate_questions([unmerged, other_result]) == []
    assert describe_duplicate_questions([unmerged, unmerged]) == []
    unanswered = grouping([0] * 10, answers=[""] * 10, instruction="Who?")
    assert describe_duplicate_questions([unanswered, other_result]) == []
