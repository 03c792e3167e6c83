"""Captions composed of phrases: who or what is seen, how many, deed what, wearing what, where and when.

The aspects of a caption are sampled independently, so two captions may agree under one question and differ under another, as the
pairs of C-STS do (Deshpande et al. 2023). ``written/scenes.yaml`` holds the phrases.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Phrases = Mapping[str, Any]
Caption = tuple[str, dict[str, str], tuple[str, ...]]
"""The caption, its answers by aspect, and the words for questions: what is counted, the thing, the garment."""


def compose_caption(phrases: Phrases, rng: random.Random) -> Caption:
    """Compose one caption.

    Args:
        phrases: Content of ``written/scenes.yaml``.
        rng: Random number generator.

    Returns:
        The caption, its answers by aspect, and the words for questions.
    """
    compose_subject = rng.choices((_compose_people, _compose_animals, _compose_things), (6, 3, 3))[0]
    subject, answers, words = compose_subject(phrases, rng)
    surroundings, surroundings_answers = _compose_surroundings(phrases, rng)
    caption = " ".join([subject, *surroundings])
    caption = caption[:1].upper() + caption[1:]
    return caption + rng.choice([".", ".", "", " ."]), answers | surroundings_answers, words


def make_question(phrases: Phrases, aspect: str, words: tuple[str, ...], rng: random.Random) -> str:
    """Choose a wording of the question about an aspect."""
    if aspect.startswith("any "):
        return str(rng.choice(phrases["questions"]["any"][aspect[4:]]))
    return str(rng.choice(phrases["questions"][aspect])).format(*words)


def _compose_people(phrases: Phrases, rng: random.Random) -> Caption:
    name = rng.choice(sorted(phrases["people"]))
    plural, sex, age = phrases["people"][name]
    number, count, counted = _choose_number(phrases, rng, name, plural)
    deeds = phrases["little_deeds"] if name in phrases["little"] else phrases["deeds"]
    deed = rng.choice(sorted(deeds))
    activity, kind, thing = deeds[deed]
    answers = {"who": f"{count} {counted}" if rng.random() < 0.3 else name, "age": age, "number": count, "activity": activity}
    answers |= {"kind": kind, "object": thing}
    if sex != "unknown":
        answers["sex"] = sex
    if kind == "sport":
        answers["sport"] = activity
    if deed.startswith("playing the"):
        answers["instrument"] = thing
    if kind in ("cooking", "eating"):
        answers["food"] = thing
    for topic, is_true in (
        ("sport", kind == "sport"),
        ("music", kind == "music"),
        ("cooking", kind == "cooking"),
        ("singing into a microphone", activity == "singing"),
        ("child", "child" in age or age == "baby"),
        *((person, sex in pair) for person, pair in (("woman", ("woman", "girl")), ("man", ("man", "boy"))) if sex != "unknown"),
    ):
        if rng.random() < 0.06:
            answers[f"any {topic}"] = "yes" if is_true else "no"
    wearing, garment = "", "clothes"
    if rng.random() < 0.4:
        colour, garment = rng.choice(phrases["colours"]), rng.choice(sorted(phrases["garments"]))
        article = "an" if colour[0] in "aeiou" else "a"
        worn = f"{article} {colour} {garment}" if count == "one" else f"{colour} {phrases['garments'][garment]}"
        wearing = rng.choice([" wearing {0}", " in {0}"]).format(worn)
        answers |= {"colour": colour, "garment": garment}
    mood = ""
    if rng.random() < 0.15:
        mood, answers["mood"] = rng.choice(sorted(phrases["moods"].items()))
        mood = f", {mood},"
    caption = f"{number}{wearing}{mood}{_choose_verb(count, rng)} {deed}"
    return caption, answers, (rng.choice(["people", "persons", counted]), thing, garment)


def _compose_animals(phrases: Phrases, rng: random.Random) -> Caption:
    name = rng.choice(sorted(phrases["animals"]))
    plural, family = phrases["animals"][name]
    coat = rng.choice(phrases["coats"]) if rng.random() < 0.55 else ""
    number, count, counted = _choose_number(phrases, rng, f"{coat} {name}".strip(), f"{coat} {plural}".strip())
    deed = rng.choice(sorted(phrases["animal_deeds"]))
    answers = {"animal": name, "family": family, "number": count, "animal_activity": phrases["animal_deeds"][deed][0]}
    if coat:
        answers["coat"] = coat
    if rng.random() < 0.1:
        answers["any animal"] = "yes"
    plain = plural if counted != name else name
    return f"{number}{_choose_verb(count, rng)} {deed}", answers, (rng.choice(["animals", plural]), plain, "animal")


def _compose_things(phrases: Phrases, rng: random.Random) -> Caption:
    name = rng.choice(sorted(phrases["things"]))
    plural, kind, general = phrases["things"][name]
    colour = rng.choice(phrases["colours"]) if rng.random() < 0.5 and kind not in ("food", "drink") else ""
    number, count, _ = _choose_number(phrases, rng, f"{colour} {name}".strip(), f"{colour} {plural}".strip())
    answers = {"thing": name, "thing_kind": f"{kind} {general}" if rng.random() < 0.3 else kind, "number": count}
    answers |= {kind: name} if kind in ("vehicle", "furniture", "device", "food") else {}
    if colour:
        answers["thing_colour"] = colour
    if rng.random() < 0.1:
        answers["any animal"] = "no"
    state = f" {rng.choice(phrases['states'])}" if count == "one" and rng.random() < 0.5 else ""
    return number + state, answers, (rng.choice(["objects", plural]), name, "thing")


def _choose_number(phrases: Phrases, rng: random.Random, one: str, many: str) -> tuple[str, str, str]:
    """Choose a number; returns the noun with its number, the number as an answer, and the counted noun."""
    probability = rng.random()
    if probability < 0.5:
        article = "an" if one[0] in "aeiou" else "a"
        return f"{rng.choice([article, article, article, 'one', 'the'])} {one}", "one", one
    if probability < 0.85:
        number, word = rng.choice(sorted(phrases["numbers"].items())[1:])
        return f"{word if rng.random() < 0.85 else number} {many}", word, many
    words, count = rng.choice(sorted(phrases["crowds"].items()))
    return f"{words} {many}", count, many


def _choose_verb(count: str, rng: random.Random) -> str:
    return rng.choice([" is" if count == "one" else " are", ""])


def _compose_surroundings(phrases: Phrases, rng: random.Random) -> tuple[list[str], dict[str, str]]:
    """Compose place, time, weather and another object; returns the parts of the caption, and their answers."""
    parts: list[str] = []
    answers: dict[str, str] = {}
    is_outdoors = True
    if rng.random() < 0.65:
        words = rng.choice(sorted(phrases["places"]))
        place, inside, ground = phrases["places"][words]
        parts.append(words)
        answers |= {"place": place, "inside": inside, "ground": ground}
        answers |= {"room": place} if "room" in ground else {}
        is_outdoors = inside == "outdoors"
    if rng.random() < 0.15:
        words, answers["time"] = rng.choice(sorted(phrases["times"].items()))
        parts.append(words)
    if is_outdoors and rng.random() < 0.15:
        words, answers["weather"] = rng.choice(sorted(phrases["weathers"].items()))
        parts.append(words)
    if rng.random() < 0.2:
        thing = rng.choice(phrases["beside"])
        parts.append(rng.choice(["next to {0}", "beside {0}", "with {0} in the background", "near {0}"]).format(thing))
        answers["beside"] = thing
    for aspect in ("weather", "time", "place"):
        if rng.random() < 0.05:
            answers[f"any {aspect}"] = "yes" if aspect in answers else "no"
    return parts, answers
