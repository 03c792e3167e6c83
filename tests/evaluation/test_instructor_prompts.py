import numpy as np
import pytest

from inbedder.embedder import InBedder
from inbedder.prompting.templates import check_unified_instruction, read_prompts
from inbedder_evaluation.embedders import make_embedders, use_training_prompts
from inbedder_evaluation.instructor_prompts import to_instructor_prompt
from inbedder_evaluation.sweeps.embedders import _replace_instructions
from inbedder_evaluation.tasks.task import read_instructions

QUESTIONS = sorted(
    {question for task in read_prompts("evaluation") if task != "csts" for question in read_instructions(task).values()}
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_of_the_tests_has_a_form_in_instructors_words(question):
    assert question in read_prompts("represent")["questions"]
    assert check_unified_instruction(to_instructor_prompt(question).replace("Represent a ", "Represent the "))
    assert to_instructor_prompt(question).endswith(": ")


def test_another_question_takes_the_general_form():
    assert to_instructor_prompt("Who is late: he?") == "Represent the text for answering the question Who is late, he: "
    assert to_instructor_prompt("Say\nwhat: this  is.") == "Represent the text for answering the question Say what, this is: "
    assert check_unified_instruction(to_instructor_prompt("Say\nwhat: this  is."))


@pytest.mark.parametrize("instruction", ["", "Represent the caption:", "Represent the caption for retrieval: "])
def test_no_instruction_and_one_in_these_words_stay_as_they_are(instruction):
    assert to_instructor_prompt(instruction) == instruction


def test_instructor_models_are_asked_in_their_training_words(make_model):
    question = "How does the customer feel?"
    model = InBedder(make_model("headless-bert"), backbone="instructor")
    instructed, uninstructed = make_embedders(model)
    assert instructed.prompt("late", question) == "Represent the banking customer message for classifying the emotion: late"
    assert uninstructed.prompt("late", question) == "late"
    as_written = make_embedders(model, verbatim=True)[0]
    assert as_written.prompt("late", question) == f"{question}late"
    assert as_written.revision != instructed.revision
    per_text = instructed.encode(["late", "lost"], [question, "What is said?"])
    np.testing.assert_allclose(per_text[0], instructed.encode(["late"], question)[0], atol=1e-6)
    assert not np.allclose(per_text[0], as_written.encode(["late"], question)[0], atol=1e-3)
    assert question in make_embedders(make_model("bert"))[0].prompt("late", question)


def test_gibberish_takes_the_place_of_instructors_words(make_model):
    model = InBedder(make_model("headless-bert"), backbone="instructor")
    meaningless = use_training_prompts(_replace_instructions(make_embedders(model, verbatim=True)[0]), model)
    assert meaningless.prompt("late", "What is in the picture?") == "AAAAAAAAA BBB CCCCCCC: late"
