from dataclasses import replace

import numpy as np

from inbedder.grouping.prepare.yes_or_no import YES_OR_NO_NOTE, regroup_by_yes_or_no
from tests.grouping.report.test_page import grouping


def with_answers(answers):
    result = grouping([0, 1, 2] * (len(answers) // 3))
    return replace(result, answers=answers, embeddings=np.random.default_rng(0).normal(size=(len(answers), 8)).astype(np.float32))


def test_yes_and_no_decide_the_groups():
    answers = ["no"] * 12 + ["Yes."] * 5 + ["no -", "", "no", "perhaps"]
    result = regroup_by_yes_or_no(with_answers(answers), "auto")
    assert result.names == ["no", "yes"] and result.notes == [YES_OR_NO_NOTE]
    assert [result.names[label] for label in result.labels[:18]] == ["no"] * 12 + ["yes"] * 5 + ["no"]
    assert result.stability is None and sum(result.sizes) == 21


def test_other_answers_leave_the_groups_as_they_are():
    for answers in (["no", "rude", "yes"] * 4, ["no"] * 11 + ["yes"], ["rude"] * 12):
        result = with_answers(answers)
        assert regroup_by_yes_or_no(result, "auto") is result
    result = with_answers(["no", "yes", "no"] * 4)
    assert regroup_by_yes_or_no(result, 3) is result and regroup_by_yes_or_no(result, 2).names == ["no", "yes"]
