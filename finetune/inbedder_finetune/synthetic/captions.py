"""Captions composed of written phrases: who or what is seen, how many, doing what, wearing what, where and when.

The aspects of a caption are drawn apart, so that two captions agree under one question and differ under another, as the pairs of
C-STS do (Deshpande et al. 2023). ``written/scenes.yaml`` holds the phrases.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Phrases = Mapping[str, Any]
Scene = tuple[str, dict[str, str], tuple[str, ...]]
"""The caption, its answers by question, and the words that questions may name: what is counted, the thing, the garment."""


def scene(phrases: Phrases, draw: random.Random) -> Scene:
    """Draw one caption.

    Args:
        phrases: What ``written/scenes.yaml`` holds.
        draw: The source of chance.

    Returns:
        The caption, its answers by question, and the words that questions may name.
    """
    maker = draw.choices((_of_people, _of_animals, _of_things), (6, 3, 3))[0]
    main, answers, words = maker(phrases, draw)
    around, more = _surroundings(phrases, draw)
    caption = " ".join([main, *around])
    caption = caption[:1].upper() + caption[1:]
    return caption + draw.choice([".", ".", "", " ."]), answers | more, words


def question(phrases: Phrases, about: str, words: tuple[str, ...], draw: random.Random) -> str:
    """One way to ask about an aspect."""
    if about.startswith("any "):
        return str(draw.choice(phrases["questions"]["any"][about[4:]]))
    return str(draw.choice(phrases["questions"][about])).format(*words)


def _of_people(phrases: Phrases, draw: random.Random) -> Scene:
    name = draw.choice(sorted(phrases["people"]))
    plural, sex, age = phrases["people"][name]
    number, count, counted = _number(phrases, draw, name, plural)
    deeds = phrases["little_deeds"] if name in phrases["little"] else phrases["deeds"]
    doing = draw.choice(sorted(deeds))
    activity, kind, thing = deeds[doing]
    answers = {"who": f"{count} {counted}" if draw.random() < 0.3 else name, "age": age, "number": count, "activity": activity}
    answers |= {"kind": kind, "object": thing}
    if sex != "unknown":
        answers["sex"] = sex
    if kind == "sport":
        answers["sport"] = activity
    if doing.startswith("playing the"):
        answers["instrument"] = thing
    if kind in ("cooking", "eating"):
        answers["food"] = thing
    for about, holds in (
        ("sport", kind == "sport"),
        ("music", kind == "music"),
        ("cooking", kind == "cooking"),
        ("singing into a microphone", activity == "singing"),
        ("child", "child" in age or age == "baby"),
        *(
            (about_whom, sex in pair)
            for about_whom, pair in (("woman", ("woman", "girl")), ("man", ("man", "boy")))
            if sex != "unknown"
        ),
    ):
        if draw.random() < 0.06:
            answers[f"any {about}"] = "yes" if holds else "no"
    wearing, garment = "", "clothes"
    if draw.random() < 0.4:
        colour, garment = draw.choice(phrases["colours"]), draw.choice(sorted(phrases["garments"]))
        article = "an" if colour[0] in "aeiou" else "a"
        worn = f"{article} {colour} {garment}" if count == "one" else f"{colour} {phrases['garments'][garment]}"
        wearing = draw.choice([" wearing {0}", " in {0}"]).format(worn)
        answers |= {"colour": colour, "garment": garment}
    mood = ""
    if draw.random() < 0.15:
        mood, answers["mood"] = draw.choice(sorted(phrases["moods"].items()))
        mood = f", {mood},"
    caption = f"{number}{wearing}{mood}{_verb(count, draw)} {doing}"
    return caption, answers, (draw.choice(["people", "persons", counted]), thing, garment)


def _of_animals(phrases: Phrases, draw: random.Random) -> Scene:
    name = draw.choice(sorted(phrases["animals"]))
    plural, family = phrases["animals"][name]
    coat = draw.choice(phrases["coats"]) if draw.random() < 0.55 else ""
    number, count, counted = _number(phrases, draw, f"{coat} {name}".strip(), f"{coat} {plural}".strip())
    doing = draw.choice(sorted(phrases["animal_deeds"]))
    answers = {"animal": name, "family": family, "number": count, "animal_activity": phrases["animal_deeds"][doing][0]}
    if coat:
        answers["coat"] = coat
    if draw.random() < 0.1:
        answers["any animal"] = "yes"
    plain = plural if counted != name else name
    return f"{number}{_verb(count, draw)} {doing}", answers, (draw.choice(["animals", plural]), plain, "animal")


def _of_things(phrases: Phrases, draw: random.Random) -> Scene:
    name = draw.choice(sorted(phrases["things"]))
    plural, kind, general = phrases["things"][name]
    colour = draw.choice(phrases["colours"]) if draw.random() < 0.5 and kind not in ("food", "drink") else ""
    number, count, _ = _number(phrases, draw, f"{colour} {name}".strip(), f"{colour} {plural}".strip())
    answers = {"thing": name, "thing_kind": f"{kind} {general}" if draw.random() < 0.3 else kind, "number": count}
    answers |= {kind: name} if kind in ("vehicle", "furniture", "device", "food") else {}
    if colour:
        answers["thing_colour"] = colour
    if draw.random() < 0.1:
        answers["any animal"] = "no"
    state = f" {draw.choice(phrases['states'])}" if count == "one" and draw.random() < 0.5 else ""
    return number + state, answers, (draw.choice(["objects", plural]), name, "thing")


def _number(phrases: Phrases, draw: random.Random, one: str, many: str) -> tuple[str, str, str]:
    """The noun with its number, the number as an answer, and the noun that is counted."""
    drawn = draw.random()
    if drawn < 0.5:
        article = "an" if one[0] in "aeiou" else "a"
        return f"{draw.choice([article, article, article, 'one', 'the'])} {one}", "one", one
    if drawn < 0.85:
        number, word = draw.choice(sorted(phrases["numbers"].items())[1:])
        return f"{word if draw.random() < 0.85 else number} {many}", word, many
    words, count = draw.choice(sorted(phrases["crowds"].items()))
    return f"{words} {many}", count, many


def _verb(count: str, draw: random.Random) -> str:
    return draw.choice([" is" if count == "one" else " are", ""])


def _surroundings(phrases: Phrases, draw: random.Random) -> tuple[list[str], dict[str, str]]:
    """Place, time, weather and what else is there."""
    parts: list[str] = []
    answers: dict[str, str] = {}
    is_outdoors = True
    if draw.random() < 0.65:
        words = draw.choice(sorted(phrases["places"]))
        place, inside, ground = phrases["places"][words]
        parts.append(words)
        answers |= {"place": place, "inside": inside, "ground": ground}
        answers |= {"room": place} if "room" in ground else {}
        is_outdoors = inside == "outdoors"
    if draw.random() < 0.15:
        words, answers["time"] = draw.choice(sorted(phrases["times"].items()))
        parts.append(words)
    if is_outdoors and draw.random() < 0.15:
        words, answers["weather"] = draw.choice(sorted(phrases["weathers"].items()))
        parts.append(words)
    if draw.random() < 0.2:
        thing = draw.choice(phrases["beside"])
        parts.append(draw.choice(["next to {0}", "beside {0}", "with {0} in the background", "near {0}"]).format(thing))
        answers["beside"] = thing
    for about in ("weather", "time", "place"):
        if draw.random() < 0.05:
            answers[f"any {about}"] = "yes" if about in answers else "no"
    return parts, answers
