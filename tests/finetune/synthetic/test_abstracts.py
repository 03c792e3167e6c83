import random
import re
from collections import Counter

from inbedder_finetune.synthetic.abstracts import compose_abstract
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER, read_phrases

PHRASES = read_phrases(WRITTEN_FOLDER / "studies.yaml")


def compose_abstracts(count, seed=0):
    draw = random.Random(seed)
    return [compose_abstract(PHRASES, draw) for _ in range(count)]


def test_a_place_is_an_answer_only_where_the_abstract_names_it():
    for abstract, answers in compose_abstracts(2000):
        named_places = {place for place in PHRASES["places"] if place in abstract}
        assert named_places == ({answers["place"]} if "place" in answers else set())


def test_most_abstracts_answer_who_was_examined_and_name_them():
    rows = compose_abstracts(2000)
    assert all(answers["who"].lower() in abstract.lower() for abstract, answers in rows if "who" in answers)
    assert sum("who" in answers for _, answers in rows) / len(rows) > 0.8


def test_the_abstract_and_the_result_name_the_outcome():
    for abstract, answers in compose_abstracts(2000):
        assert answers["outcome"].lower() in abstract.lower()
        assert answers["outcome"] in answers["result"]


def test_the_result_is_worded_in_its_direction_only():
    for abstract, answers in compose_abstracts(2000):
        plain = {"higher": "There was a clear rise of {outcome}", "unchanged": "{factor} had no significant effect"}
        for direction, sentence in plain.items():
            result = sentence.format(**answers)
            result = result[:1].upper() + result[1:]
            assert result not in abstract or answers["direction"] == direction


def test_direction_is_independent_of_field_and_design():
    rows = [answers for _, answers in compose_abstracts(20000)]
    for aspect in ("field", "method"):
        counts = Counter((row[aspect], row["direction"]) for row in rows)
        for value in {row[aspect] for row in rows}:
            shares = [counts[value, direction] / sum(row[aspect] == value for row in rows) for direction in PHRASES["results"]]
            assert max(shares) < 0.45


def test_every_question_is_answered_and_every_frame_is_filled():
    rows = compose_abstracts(2000)
    assert set().union(*(answers for _, answers in rows)) == PHRASES["questions"].keys()
    assert not [abstract for abstract, _ in rows if re.search(r"[{}]", abstract)]
