import random
import re
from collections import Counter

from inbedder_finetune.synthetic.abstracts import study
from inbedder_finetune.synthetic.compose import WRITTEN, read_phrases

PHRASES = read_phrases(WRITTEN / "studies.yaml")


def studies(count, seed=0):
    draw = random.Random(seed)
    return [study(PHRASES, draw) for _ in range(count)]


def test_a_place_is_an_answer_where_the_abstract_names_it_and_nowhere_else():
    for abstract, answers in studies(2000):
        named = {place for place in PHRASES["places"] if place in abstract}
        assert named == ({answers["place"]} if "place" in answers else set())


def test_who_was_examined_is_an_answer_in_nearly_all_abstracts_and_always_told():
    rows = studies(2000)
    assert all(answers["who"].lower() in abstract.lower() for abstract, answers in rows if "who" in answers)
    assert sum("who" in answers for _, answers in rows) / len(rows) > 0.8


def test_the_outcome_always_stands_in_the_abstract_and_the_result_names_it():
    for abstract, answers in studies(2000):
        assert answers["outcome"].lower() in abstract.lower()
        assert answers["outcome"] in answers["result"]


def test_the_result_is_told_in_words_of_its_direction_alone():
    for abstract, answers in studies(2000):
        plain = {"higher": "There was a clear rise of {outcome}", "unchanged": "{factor} had no significant effect"}
        for direction, sentence in plain.items():
            told = sentence.format(**answers)
            told = told[:1].upper() + told[1:]
            assert told not in abstract or answers["direction"] == direction


def test_direction_is_independent_of_field_and_design():
    rows = [answers for _, answers in studies(20000)]
    for aspect in ("field", "method"):
        counts = Counter((row[aspect], row["direction"]) for row in rows)
        for value in {row[aspect] for row in rows}:
            shares = [counts[value, direction] / sum(row[aspect] == value for row in rows) for direction in PHRASES["results"]]
            assert max(shares) < 0.45


def test_every_question_is_answered_by_some_study_and_no_frame_is_left_open():
    rows = studies(2000)
    assert set().union(*(answers for _, answers in rows)) == PHRASES["questions"].keys()
    assert not [abstract for abstract, _ in rows if re.search(r"[{}]", abstract)]
