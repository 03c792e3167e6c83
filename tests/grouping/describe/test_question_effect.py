import numpy as np
import pytest

import inbedder.grouping.describe.question_effect as question_effect
from inbedder.grouping.describe.question_effect import YES_OR_NO_NOTE, describe_effect, explain_yes_or_no
from tests.conftest import blobs
from tests.grouping.report.test_page import grouping

VECTORS = blobs((20, 20))
LABELS = [0] * 20 + [1] * 20


@pytest.mark.parametrize(
    ("labels", "beginning"),
    [
        (LABELS, "The question changes little: without one, nearly the same groups form (agreement 1.00;"),
        ([0] * 28 + [1] * 12, "The question changes the groups in part"),
        ([0, 1] * 20, "The question makes the groups: without one, others form"),
    ],
)
def test_the_effect_is_told_by_the_agreement_with_unasked_groups(labels, beginning):
    assert describe_effect(grouping(labels), VECTORS).startswith(beginning)


def test_texts_that_fit_no_group_do_not_count_and_one_group_has_no_effect():
    left_out = grouping([*LABELS[:-4], 2, 2, 2, 2], left_out=2)
    assert "(agreement 1.00;" in describe_effect(left_out, VECTORS)
    assert describe_effect(grouping([0] * 40), VECTORS) == ""
    assert describe_effect(grouping(LABELS), np.ones((40, 3), np.float32)) == ""


def test_of_many_texts_a_sample_is_grouped_without_the_question(monkeypatch):
    sizes, group = [], question_effect.group
    monkeypatch.setattr(question_effect, "MAX_COMPARED_ROWS", 12)
    monkeypatch.setattr(
        question_effect, "group", lambda vectors, *options: (sizes.append(len(vectors)), group(vectors, *options))[1]
    )
    assert "(agreement 1.00;" in describe_effect(grouping(LABELS), VECTORS)
    assert sizes == [12]


@pytest.mark.parametrize(
    ("answers", "count"),
    [(["no", "Yes.", "yes -", ""], 1), (["no", "no"], 1), (["no", "rude", "yes"], 0), (["", ""], 0), ([], 0)],
)
def test_answers_of_yes_and_no_get_a_note(answers, count):
    assert explain_yes_or_no(answers) == [YES_OR_NO_NOTE] * count
