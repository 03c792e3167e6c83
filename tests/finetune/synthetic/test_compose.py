import itertools
import re

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.qa_rows import load_rows
from inbedder_finetune.sources import Source
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER, compose, read_phrases

OPINIONS = WRITTEN_FOLDER / "opinions.yaml"
REQUESTS = WRITTEN_FOLDER / "requests.yaml"
SERVICES = WRITTEN_FOLDER / "services.yaml"
SCENES = WRITTEN_FOLDER / "scenes.yaml"
STUDIES = WRITTEN_FOLDER / "studies.yaml"
TITLES = WRITTEN_FOLDER / "titles.yaml"
COMPLAINTS = WRITTEN_FOLDER / "complaints.yaml"
FORMS = WRITTEN_FOLDER / "forms.yaml"
ALL = [FORMS, OPINIONS, REQUESTS, SERVICES, COMPLAINTS, SCENES, STUDIES, TITLES]


@pytest.mark.parametrize("phrases", ALL, ids=lambda path: path.stem)
def test_rows_depend_on_the_seed_only(phrases):
    first = list(compose(phrases, 300))
    assert first == list(compose(phrases, 300))
    assert first != list(compose(phrases, 300, seed=1))
    assert len(first) == 300


@pytest.mark.parametrize("phrases", ALL, ids=lambda path: path.stem)
def test_most_texts_are_asked_two_different_questions(phrases):
    rows = list(compose(phrases, 2000))
    rows_by_text = [list(text_rows) for _, text_rows in itertools.groupby(rows, lambda row: row["input"])]
    assert sum(len({row["instruction"] for row in text_rows}) == 2 for text_rows in rows_by_text) > 900
    assert all(row["input"].strip() and row["instruction"] and row["output"] for row in rows)


def test_judgement_and_kind_are_independent_of_each_other():
    rows = [row for row in compose(OPINIONS, 20000) if row["output"] in ("positive", "negative")]
    judgements = [row["output"] for row in rows if "novel" in row["input"] or "thriller" in row["input"]]
    assert 0.3 < judgements.count("positive") / len(judgements) < 0.7


def test_the_text_names_its_facts():
    for row in compose(OPINIONS, 3000):
        if row["instruction"] in ("Which city is mentioned?", "How much did it cost?", "Which brand is words_by_field?"):
            assert row["output"] in row["input"]


@pytest.mark.parametrize("phrases", [FORMS, REQUESTS, SERVICES, COMPLAINTS, SCENES, STUDIES, TITLES], ids=lambda path: path.stem)
def test_every_frame_is_filled(phrases):
    assert not [row for row in compose(phrases, 20000) if re.search(r"[{}]", " ".join(row.values()))]


def test_extending_phrases_override_those_of_their_base():
    services, opinions = read_phrases(SERVICES), read_phrases(OPINIONS)
    assert services["feelings"] == opinions["feelings"]
    assert services["kinds"] != opinions["kinds"]


def test_a_fact_may_set_its_own_frequency():
    firms = read_phrases(COMPLAINTS)["facts"]["company"]
    rows = list(compose(COMPLAINTS, 6000, questions_per_text=1))
    assert 0.85 < sum(any(firm in row["input"] for firm in firms["of"]) for row in rows) / len(rows) < 0.95
    firm_rows = [row for row in rows if row["instruction"] in firms["ask"]]
    assert firm_rows
    assert all(row["output"] in row["input"] for row in firm_rows)


def test_a_complaint_about_a_service_names_an_aspect():
    rows = {(row["input"], row["instruction"]): row["output"] for row in compose(SERVICES, 10000, questions_per_text=9)}
    aspects = {answer for (_, question), answer in rows.items() if question == "What is rated?"}
    assert {"staff", "food", "price"} <= aspects
    assert not [answer for answer in rows.values() if "/" in answer]


def test_the_mood_of_a_request_is_independent_of_a_complaint():
    rows = list(compose(REQUESTS, 20000, questions_per_text=6))
    complaints = {row["input"]: row["output"] for row in rows if row["instruction"] == "Is it a complaint?"}
    moods = [complaints[row["input"]] for row in rows if row["output"] == "optimism hope" and row["input"] in complaints]
    assert {"yes", "no"} == set(moods)


def test_messages_with_upsetting_feelings_are_upset():
    moods = {"optimism hope": "happy", "anger": "upset", "frustration annoyance": "upset", "gratitude thankful": "happy"}
    rows = list(compose(REQUESTS, 20000))
    feelings = {row["input"]: moods[row["output"]] for row in rows if row["output"] in moods}
    pairs = [
        (feelings[row["input"]], row["output"]) for row in rows if row["output"] in moods.values() and row["input"] in feelings
    ]
    assert pairs
    assert all(expected == answer for expected, answer in pairs)


def test_shipped_phrases_are_found_without_a_file_of_that_name(tmp_path):
    rows = load_rows(AnsweringData((Source("opinions.yaml", cap=20),), folder=str(tmp_path)))
    assert len(rows) == 20
    (tmp_path / "opinions.yaml").write_text("rows: [", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"Cannot read .*opinions.yaml"):
        load_rows(AnsweringData((Source("opinions.yaml"),), folder=str(tmp_path)))


def test_titles_of_every_field_have_every_purpose_that_fits():
    phrases = read_phrases(TITLES)
    fields = {field["is"]: set(phrases["titles"]) for field in phrases["fields"]}
    for field in phrases["fields"]:
        if "things" not in field:
            fields[field["is"]] -= {"sells", "wants to buy"}
    rows = [(row["input"], row["output"]) for row in compose(TITLES, 20000)]
    subjects = {text: answer for text, answer in rows if answer in fields}
    pairs = {(subjects[text], answer) for text, answer in rows if answer in phrases["titles"] and text in subjects}
    assert pairs == {(field, purpose) for field, purposes in fields.items() for purpose in purposes}


def test_a_title_names_a_topic_of_its_field():
    phrases = read_phrases(TITLES)
    words_by_field = {
        field["is"]: {word.lower() for word in [*field["matters"], *field.get("things", ())]} for field in phrases["fields"]
    }
    for row in compose(TITLES, 5000):
        if row["output"] in words_by_field:
            assert any(word in row["input"].lower() for word in words_by_field[row["output"]])
