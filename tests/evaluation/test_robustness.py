from statistics import mean

import pytest

from evaluation.tasks.robustness import InstructionRobustness, LabelledTexts, robustness_instructions
from inbedder.errors import InputError
from tests.evaluation.test_tasks import ignorant, one_hot

TEXTS = [f"{kind} {i}" for kind in "abc" for i in range(8)]
DATA = LabelledTexts("toy", TEXTS, [text[0] for text in TEXTS], "toy", "none")
ASKED = {"correct": ["Kind?", "Which kind?"], "implicit": ["Shelf?", "Sort?"], "incorrect": ["Long?", "Loud?"]}


def obedient(texts, instruction):
    """Groups by the label when asked for it, half of the time when it is implied, never when not."""
    if instruction in ASKED["correct"] or instruction == "Shelf?":
        return one_hot([text[0] for text in texts])
    return ignorant(texts, instruction)


def test_deltas_are_differences_of_means():
    scores = InstructionRobustness(DATA, ASKED).evaluate(obedient, seed=0)
    correct, implicit, incorrect = (
        mean(scores[f"{kind}_{i}"] for i in range(2)) for kind in ("correct", "implicit", "incorrect")
    )
    assert correct == pytest.approx(100)
    assert scores["delta_ci"] == pytest.approx(correct - incorrect)
    assert scores["delta_ii"] == pytest.approx(implicit - incorrect)
    assert (scores["correct_min"], scores["correct_mean"], scores["correct_max"]) == pytest.approx((100, 100, 100))
    assert 0 < scores["delta_ii"] < scores["delta_ci"]


def test_a_model_that_ignores_instructions_has_no_delta():
    scores = InstructionRobustness(DATA, ASKED).evaluate(ignorant, seed=0)
    assert (scores["delta_ci"], scores["delta_ii"]) == (0, 0)


@pytest.mark.parametrize(
    ("data", "asked", "message"),
    [
        (DATA, {**ASKED, "implicit": []}, "has no implicit instructions"),
        (LabelledTexts("toy", TEXTS, ["a"] * 24, "toy", "none"), ASKED, "1 classes in 24 texts"),
        (LabelledTexts("toy", TEXTS, TEXTS, "toy", "none"), ASKED, "24 classes in 24 texts"),
    ],
)
def test_what_cannot_be_measured_is_refused(data, asked, message):
    with pytest.raises(InputError, match=message):
        InstructionRobustness(data, asked)


def test_every_shipped_criterion_has_ten_of_each_kind():
    for criteria in robustness_instructions().values():
        for asked in criteria.values():
            assert [len(asked[kind]) for kind in ("correct", "implicit", "incorrect")] == [10, 10, 10]
            every = [one for kind in ("correct", "implicit", "incorrect") for one in asked[kind]]
            assert len(set(every)) == 30
