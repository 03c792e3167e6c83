import itertools
import random

from inbedder_finetune.synthetic.captions import question, scene
from inbedder_finetune.synthetic.compose import WRITTEN, read_phrases

PHRASES = read_phrases(WRITTEN / "scenes.yaml")


def scenes(count, seed=0):
    draw = random.Random(seed)
    return [scene(PHRASES, draw) for _ in range(count)]


def test_place_number_and_colour_stand_in_the_caption():
    places = {phrase: answers[0] for phrase, answers in PHRASES["places"].items()}
    for caption, answers, _ in scenes(2000):
        if "place" in answers:
            assert answers["place"] in {place for phrase, place in places.items() if phrase in caption}
        if "colour" in answers:
            assert answers["colour"] in caption
        if answers["number"] in ("two", "five"):
            assert any(word in caption for word in ("Two", "2", "couple", "Five", "5"))


def test_place_and_activity_are_independent_of_each_other():
    pairs = [(one["activity"], one["place"]) for _, one, _ in scenes(20000) if {"activity", "place"} <= one.keys()]
    swimming_places = {place for activity, place in pairs if activity == "swimming"}
    assert len(swimming_places) > 20


def test_whether_there_is_music_agrees_with_what_they_do():
    for _, answers, _ in scenes(20000):
        if "any music" in answers:
            assert answers["any music"] == ("yes" if answers["kind"] == "music" else "no")


def test_small_children_do_what_small_children_can():
    doing = {answers["activity"] for _, answers, _ in scenes(5000) if answers.get("who") in PHRASES["little"]}
    assert doing <= {deed[0] for deed in PHRASES["little_deeds"].values()}


def test_every_aspect_can_be_asked_about():
    draw = random.Random(0)
    for _, answers, words in scenes(500):
        for about, _ in itertools.product(answers, range(3)):
            asked = question(PHRASES, about, words, draw)
            assert asked
            assert "{" not in asked
