import itertools
import re

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import AnsweringData
from inbedder_finetune.answering.qa_rows import load_rows
from inbedder_finetune.sources import Source
from inbedder_finetune.synthetic.compose import WRITTEN, compose, read_phrases

OPINIONS = WRITTEN / "opinions.yaml"
REQUESTS = WRITTEN / "requests.yaml"
SERVICES = WRITTEN / "services.yaml"
SCENES = WRITTEN / "scenes.yaml"
STUDIES = WRITTEN / "studies.yaml"
TITLES = WRITTEN / "titles.yaml"
COMPLAINTS = WRITTEN / "complaints.yaml"
ALL = [OPINIONS, REQUESTS, SERVICES, COMPLAINTS, SCENES, STUDIES, TITLES]


@pytest.mark.parametrize("phrases", ALL, ids=lambda path: path.stem)
def test_rows_are_drawn_by_their_seed_alone(phrases):
    first = list(compose(phrases, 300))
    assert first == list(compose(phrases, 300))
    assert first != list(compose(phrases, 300, seed=1))
    assert len(first) == 300


@pytest.mark.parametrize("phrases", ALL, ids=lambda path: path.stem)
def test_most_texts_are_asked_two_different_questions(phrases):
    rows = list(compose(phrases, 2000))
    by_text = {text: list(some) for text, some in itertools.groupby(rows, lambda row: row["input"])}
    assert sum(len({row["instruction"] for row in some}) == 2 for some in by_text.values()) > 900
    assert all(row["input"].strip() and row["instruction"] and row["output"] for row in rows)


def test_judgement_and_kind_are_independent_of_each_other():
    rows = [row for row in compose(OPINIONS, 20000) if row["output"] in ("positive", "negative")]
    books = [row["output"] for row in rows if "novel" in row["input"] or "thriller" in row["input"]]
    assert 0.3 < books.count("positive") / len(books) < 0.7


def test_facts_that_are_told_stand_in_the_text():
    for row in compose(OPINIONS, 3000):
        if row["instruction"] in ("Which city is mentioned?", "How much did it cost?", "Which brand is named?"):
            assert row["output"] in row["input"]


@pytest.mark.parametrize("phrases", [REQUESTS, SERVICES, COMPLAINTS, SCENES, STUDIES, TITLES], ids=lambda path: path.stem)
def test_no_frame_is_left_open(phrases):
    assert not [row for row in compose(phrases, 20000) if re.search(r"[{}]", " ".join(row.values()))]


def test_phrases_that_extend_others_have_theirs_but_for_their_own():
    services, opinions = read_phrases(SERVICES), read_phrases(OPINIONS)
    assert services["feelings"] == opinions["feelings"]
    assert services["kinds"] != opinions["kinds"]


def test_a_fact_may_say_itself_how_often_it_is_told():
    firms = read_phrases(COMPLAINTS)["facts"]["company"]
    rows = list(compose(COMPLAINTS, 6000, questions=1))
    assert 0.85 < sum(any(firm in row["input"] for firm in firms["of"]) for row in rows) / len(rows) < 0.95
    asked = [row for row in rows if row["instruction"] in firms["ask"]]
    assert asked
    assert all(row["output"] in row["input"] for row in asked)


def test_a_complaint_about_a_service_belongs_to_an_aspect_of_it():
    rows = {(row["input"], row["instruction"]): row["output"] for row in compose(SERVICES, 10000, questions=9)}
    aspects = {answer for (_, question), answer in rows.items() if question == "What is rated?"}
    assert {"staff", "food", "price"} <= aspects
    assert not [answer for answer in rows.values() if "/" in answer]


def test_mood_of_a_request_is_independent_of_whether_something_is_wrong():
    rows = list(compose(REQUESTS, 20000, questions=6))
    wrong = {row["input"]: row["output"] for row in rows if row["instruction"] == "Is it a complaint?"}
    moods = [wrong[row["input"]] for row in rows if row["output"] == "optimism hope" and row["input"] in wrong]
    assert {"yes", "no"} == set(moods)


def test_messages_of_feelings_that_upset_are_upset():
    moods = {"optimism hope": "happy", "anger": "upset", "frustration annoyance": "upset", "gratitude thankful": "happy"}
    rows = list(compose(REQUESTS, 20000))
    feelings = {row["input"]: moods[row["output"]] for row in rows if row["output"] in moods}
    said = [
        (feelings[row["input"]], row["output"]) for row in rows if row["output"] in moods.values() and row["input"] in feelings
    ]
    assert said
    assert all(expected == answer for expected, answer in said)


def test_shipped_phrases_are_found_beside_a_folder_of_data(tmp_path):
    rows = load_rows(AnsweringData((Source("opinions.yaml", cap=20),), folder=str(tmp_path)))
    assert len(rows) == 20
    (tmp_path / "opinions.yaml").write_text("rows: [", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"Cannot read .*opinions.yaml"):
        load_rows(AnsweringData((Source("opinions.yaml"),), folder=str(tmp_path)))


def test_long_opinions_are_longer_and_ask_more():
    short, long = (list(compose(OPINIONS, 2000, questions=5, long=one)) for one in (False, True))
    mean = [sum(len(row["input"]) for row in rows) / len(rows) for rows in (short, long)]
    assert mean[1] > 1.6 * mean[0]
    assert len({row["input"] for row in long}) < 500


def test_titles_of_every_field_have_every_purpose_but_trade_where_nothing_can_be_sold():
    phrases = read_phrases(TITLES)
    fields = {field["is"]: set(phrases["titles"]) for field in phrases["fields"]}
    for field in phrases["fields"]:
        if "things" not in field:
            fields[field["is"]] -= {"sells", "wants to buy"}
    rows = [(row["input"], row["output"]) for row in compose(TITLES, 20000)]
    subjects = {text: answer for text, answer in rows if answer in fields}
    drawn = {(subjects[text], answer) for text, answer in rows if answer in phrases["titles"] and text in subjects}
    assert drawn == {(field, purpose) for field, purposes in fields.items() for purpose in purposes}


def test_a_title_names_a_matter_or_a_thing_of_its_field():
    phrases = read_phrases(TITLES)
    named = {field["is"]: {word.lower() for word in [*field["matters"], *field.get("things", ())]} for field in phrases["fields"]}
    for row in compose(TITLES, 5000):
        if row["output"] in named:
            assert any(word in row["input"].lower() for word in named[row["output"]])
