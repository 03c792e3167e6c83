import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.questions.suggestion import suggest_questions
from tests.conftest import blobs, with_answers

TEXTS = [f"text {i}" for i in range(60)]
GROUPS = {
    None: [30, 30],
    "Half?": [30, 30],  # as without a question
    "Thirds?": [20, 20, 20],
    "Thirds again?": [20, 20, 20],
    "One answer?": [20, 20, 20],
}


@pytest.fixture
def model(make_model, monkeypatch):
    """A model whose groups and answers are those of ``GROUPS``."""
    model = InBedder(make_model("opt"))
    labels = {question: np.repeat(np.arange(len(sizes)), sizes) for question, sizes in GROUPS.items()}
    shuffle = np.random.default_rng(0).permutation(60)

    def encode(texts, question=None, **_):
        rows = [int(text.split()[1]) for text in texts]
        vectors = np.pad(blobs(GROUPS[question]), ((0, 0), (0, 24)))
        return vectors[rows] if question in (None, "Half?") else vectors[shuffle][rows]

    def answer(texts, question, **_):
        if question == "One answer?":
            return ["yes"] * len(texts)
        rows = [int(text.split()[1]) for text in texts]
        return [f"answer {labels[question][shuffle][row]}" for row in rows]

    monkeypatch.setattr(model, "encode", with_answers(model, encode))
    monkeypatch.setattr(model, "answer", answer)
    return model


def test_rich_stable_and_different_groups_rank_first(model):
    questions = ["Half?", "One answer?", "Thirds?", "Thirds again?"]
    ranked = suggest_questions(TEXTS, questions, model)
    assert ranked[0].instruction == "Thirds?"
    by_question = {each.instruction: each for each in ranked}
    assert by_question["Thirds?"].distinct_answers == pytest.approx(3)
    assert by_question["Thirds?"].stability == 1 and by_question["Thirds?"].novelty == 1
    assert by_question["One answer?"].score == by_question["Half?"].score == by_question["Thirds again?"].score == 0
    assert by_question["Half?"].difference == by_question["Thirds again?"].novelty == 0
    assert len(ranked[0].result.texts) == 60


def test_empty_answers_are_no_answers(model, monkeypatch):
    answer = model.answer
    monkeypatch.setattr(model, "answer", lambda texts, question, **_: ["", *answer(texts, question)[1:-1], ""])
    ranked = {each.instruction: each for each in suggest_questions(TEXTS, ["Thirds?", "One answer?"], model)}
    assert ranked["Thirds?"].distinct_answers == pytest.approx(3, abs=0.01)
    assert ranked["One answer?"].distinct_answers == 1
    monkeypatch.setattr(model, "answer", lambda texts, *_, **__: [""] * len(texts))
    assert suggest_questions(TEXTS, ["Thirds?"], model)[0].distinct_answers == 1


def test_a_sample_is_tried_and_named_instructions_are_the_default(make_model):
    model = InBedder(make_model("bert"))
    ranked = suggest_questions(TEXTS, None, model, sample=25)
    assert {"@topic", "@emotion"} <= {each.instruction for each in ranked}
    assert {len(each.result.texts) for each in ranked} == {25}
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)


@pytest.mark.parametrize(
    ("texts", "questions", "message"),
    [
        (TEXTS[:19], None, "At least 20 texts are needed to compare questions; got 19"),
        (TEXTS, [], "0 wordings"),
        (TEXTS, ["a?", "a?"], "occurs twice"),
    ],
)
def test_too_few_texts_and_no_question_are_refused(texts, questions, message):
    with pytest.raises(InputError, match=message):
        suggest_questions(texts, questions, "mini")
