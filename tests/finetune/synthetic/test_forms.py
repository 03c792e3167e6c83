import random

from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER, compose, read_phrases
from inbedder_finetune.synthetic.forms import compose_form, read_wordings

FORMS = WRITTEN_FOLDER / "forms.yaml"
PHRASES = read_phrases(FORMS)
CONTENT_KEYS = {"about", "area", "do", "matter", "fact"}


def compose_texts(count):
    rng = random.Random(0)
    return [compose_form(PHRASES, rng) for _ in range(count)]


def test_every_content_is_written_out_in_twelve_forms_or_more():
    for content in PHRASES["contents"]:
        assert set(content) >= CONTENT_KEYS
        names = set(content) - CONTENT_KEYS
        assert len(names) >= 12
        assert names <= set(PHRASES["forms"])


def test_no_text_is_written_twice():
    texts = [content[key] for content in PHRASES["contents"] for key in content.keys() - {"area"}]
    texts += [frame for form in PHRASES["forms"].values() for frame in form["says"]]
    assert len(texts) == len(set(texts))


def test_answers_about_content_and_form_are_short():
    answers = [answer for _, answers in compose_texts(3000) for answer in answers.values()]
    assert max(len(answer.split()) for answer in answers) <= 3


def test_form_and_content_are_independent():
    texts = compose_texts(30000)
    for area in ("food", "work", "health"):
        acts = [answers["act"] for _, answers in texts if answers["area"] == area and "act" in answers]
        assert 0.06 < acts.count("promise") / len(acts) < 0.15


def test_a_sentence_written_for_a_child_is_simple():
    content = next(content for content in PHRASES["contents"] if content["about"] == "school trip")
    answers = {text: answers for text, answers in compose_texts(20000)}
    assert answers[content["child"]] == {"about": "school trip", "area": "school", "difficulty": "easy simple"}


def test_questions_are_worded_as_in_the_folder_of_questions():
    acts = read_wordings({"act": "act"})["act"]
    assert len(acts) > 14
    assert {row["instruction"] for row in compose(FORMS, 8000) if row["output"] == "promise"} == set(acts)


def test_every_criterion_of_a_form_has_a_question():
    criteria = {criterion for form in PHRASES["forms"].values() for criterion in form["is"]}
    assert criteria | {"about", "area"} == set(PHRASES["questions"])
