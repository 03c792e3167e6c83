import itertools
import random

from inbedder_finetune.synthetic.captions import compose_caption, make_question
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER, read_phrases

PHRASES = read_phrases(WRITTEN_FOLDER / "scenes.yaml")


def compose_captions(count, seed=0):
    rng = random.Random(seed)
    return [compose_caption(PHRASES, rng) for _ in range(count)]


def test_the_caption_names_place_number_and_colour():
    place_by_phrase = {phrase: answers[0] for phrase, answers in PHRASES["places"].items()}
    for caption, answers, _ in compose_captions(2000):
        if "place" in answers:
            assert answers["place"] in {place for phrase, place in place_by_phrase.items() if phrase in caption}
        if "colour" in answers:
            assert answers["colour"] in caption
        if answers["number"] in ("two", "five"):
            assert any(word in caption for word in ("Two", "2", "couple", "Five", "5"))


def test_place_and_activity_are_independent_of_each_other():
    pairs = [(one["activity"], one["place"]) for _, one, _ in compose_captions(20000) if {"activity", "place"} <= one.keys()]
    swimming_places = {place for activity, place in pairs if activity == "swimming"}
    assert len(swimming_places) > 20


def test_whether_there_is_music_agrees_with_what_they_do():
    for _, answers, _ in compose_captions(20000):
        if "any music" in answers:
            assert answers["any music"] == ("yes" if answers["kind"] == "music" else "no")


def test_small_children_do_what_small_children_can():
    activities = {answers["activity"] for _, answers, _ in compose_captions(5000) if answers.get("who") in PHRASES["little"]}
    assert activities <= {deed[0] for deed in PHRASES["little_deeds"].values()}


def test_every_aspect_has_a_question():
    rng = random.Random(0)
    for _, answers, words in compose_captions(500):
        for aspect, _ in itertools.product(answers, range(3)):
            question = make_question(PHRASES, aspect, words, rng)
            assert question
            assert "{" not in question
