"""Rows composed of written phrases: one text, many aspects, each independent of the others.

Real sets ask few questions of a text, and its aspects go together (a complaint about a flight is negative and about travel), so a
model can answer by reading the text and not the question. Here the kind of thing, the judgement, the feeling, the request and the
facts of a text are drawn apart, and two of the questions that it answers are asked. ``written/opinions.yaml`` holds the phrases
of reviews and letters, ``written/services.yaml`` more of them, about services, ``written/complaints.yaml`` those of lines to
transport companies, ``written/requests.yaml`` those of short messages that want something, in some mood, and
``written/scenes.yaml`` those of captions, ``written/studies.yaml`` those of abstracts, ``written/titles.yaml`` those of titles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from inbedder.package_data import data_folder
from inbedder_finetune.synthetic.abstracts import study
from inbedder_finetune.synthetic.captions import question as ask_of_scene
from inbedder_finetune.synthetic.captions import scene

WRITTEN = data_folder("inbedder_finetune", "written")
OPENINGS = (
    "{0}.",
    "About the {0}.",
    "This is about the {0}.",
    "I want to tell you about the {0}.",
    "Let me say something of my {0}.",
)
DONE_WITH_IT = {"good": "happiness satisfaction", "bad": "frustration disappointment", None: "calm"}
SAID = {"good": "positive", "bad": "negative", None: "neutral"}


def compose(
    path: Path, rows: int | None = None, seed: int = 0, questions: int = 2, *, long: bool = False
) -> Iterator[dict[str, str]]:
    """Draw texts and the questions that they answer.

    Args:
        path: A YAML file of phrases, such as ``written/opinions.yaml``: captions if it has ``animals``, abstracts if it has
            ``designs``, titles if it has ``titles``, requests if it has ``areas``, else opinions.
        rows: How many rows; None for as many as the file's ``rows`` says.
        seed: Seed of the draw.
        questions: At most so many questions per text.
        long: Opinions of about fifteen sentences in place of six.

    Yields:
        Records of input, instruction and output.
    """
    phrases = read_phrases(path)
    draw = random.Random(f"{seed} {path.name}")
    left = phrases["rows"] if rows is None else rows
    while left > 0:
        words: tuple[str, ...] = ()
        if "animals" in phrases:
            text, answers, words = scene(phrases, draw)
        elif "designs" in phrases:
            text, answers = study(phrases, draw)
        elif "titles" in phrases:
            text, answers = _title(phrases, draw)
        elif "areas" in phrases:
            text, answers = _request(phrases, draw)
        else:
            text, answers = _opinion(phrases, draw, long)
        aspects = draw.sample(sorted(answers), min(questions, len(answers), left))
        for aspect in aspects:
            question = ask_of_scene(phrases, aspect, words, draw) if words else _question(phrases, aspect, draw)
            yield {"input": text, "instruction": question, "output": answers[aspect]}
        left -= len(aspects)


def read_phrases(path: Path) -> dict[str, Any]:
    """The phrases of a file; one that ``extends`` another has all of that one's, its own in their place."""
    phrases = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    below = phrases.pop("extends", None)
    return read_phrases(path.parent / below) | phrases if below else phrases


def _title(phrases: Mapping[str, Any], draw: random.Random) -> tuple[str, dict[str, str]]:
    """A line such as the subject of a message, and its answers by question."""
    field = draw.choice(phrases["fields"])
    things = field.get("things", ())
    purpose, ways = draw.choice(sorted(phrases["titles"].items()))
    while not things and all("{thing}" in way for way in ways):
        purpose, ways = draw.choice(sorted(phrases["titles"].items()))
    form = draw.choice([way for way in ways if len(things) > 1 or "{thing}" not in way or (things and "{other}" not in way)])
    matters = dict(zip("ab", draw.sample(field["matters"], 2), strict=True))
    named = dict(zip(("thing", "other"), draw.sample(things, min(2, len(things))), strict=False))
    line = form.format(**matters, **named)
    line = draw.choice([line, line, line, line.lower(), line.upper(), f"Re: {line}", f"Re: {line}"])
    return line[:1].upper() + line[1:], {"subject": field["is"], "purpose": purpose}


def _request(phrases: Mapping[str, Any], draw: random.Random) -> tuple[str, dict[str, str]]:
    """A short message that wants something, and its answers by question."""
    is_wrong = draw.random() < 0.4
    if draw.random() < 0.5:
        area, things = draw.choice(sorted(phrases["things"].items()))
        thing = draw.choice(things)
        deed, ways = draw.choice(sorted(phrases["failures" if is_wrong else "deeds"].items()))
        intent, text = deed.format(thing), draw.choice(ways).format(thing)
    else:
        chosen = draw.choice(phrases["areas"])
        area, is_wrong = chosen["area"], is_wrong and "wrong" in chosen
        intent, ways = draw.choice(sorted(chosen["wrong" if is_wrong else "wanted"].items()))
        text = draw.choice(ways)
    if text[-1] not in ".!?":
        text = draw.choice(phrases["frames"]).format(text)
    if is_wrong:
        text = f"{text} {draw.choice(phrases['wrong_ends'])}".strip()
    answers = {"intent": intent, "area": area} | ({"complaint": intent} if is_wrong else {})
    if draw.random() < 0.3:
        answers["wrong"] = "yes" if is_wrong else "no"
    before: list[str] = []
    after: list[str] = []
    if draw.random() < 0.6:
        answers["emotion"] = draw.choice(sorted(phrases["feelings"]))
        for sentence in draw.sample(phrases["feelings"][answers["emotion"]], draw.choice([1, 1, 2])):
            if "{0}" in sentence:
                text = sentence.format(text)
            else:
                draw.choice([before, after]).append(sentence)
        if answers["emotion"] not in phrases["undecided"]:
            is_upset = answers["emotion"] in phrases["upset"]
            answers |= draw.choice([{"side": "upset" if is_upset else "happy"}, {"upset": "yes" if is_upset else "no"}, {}])
    if draw.random() < 0.25:
        draw.choice([before, after]).append(draw.choice(phrases["asides"]))
    whole = " ".join([*before, text, *after])
    return (whole.lower().rstrip(".?!") if draw.random() < 0.25 else whole[:1].upper() + whole[1:]), answers


def _opinion(phrases: Mapping[str, Any], draw: random.Random, long: bool = False) -> tuple[str, dict[str, str]]:
    """A text that judges a thing or asks for one, and its answers by question."""
    kind = draw.choice(phrases["kinds"])
    name = draw.choice(kind["is"])
    requests = bool(kind.get("asks")) and draw.random() < 0.45
    side = draw.choice([None, "good", "bad"]) if requests else draw.choice([None, "good", "good", "bad", "bad"])
    sentences, answers = _opinions(phrases, kind, side, draw, long)
    brief = bool(phrases.get("brief")) and not long
    most = 1 if brief else len(kind["says"])
    body = draw.sample(kind["says"], len(kind["says"]) if long else draw.randint(0 if requests or (brief and side) else 1, most))
    if requests:
        answers["intent"], request = draw.choice(sorted(kind["asks"].items()))
        body.append(request if isinstance(request, str) else draw.choice(request))
    answers |= {"name": name, "group": name if kind["group"] == name else f"{kind['group']} {name}", "polarity": SAID[side]}
    feeling = _feeling(phrases, side, draw, often=0.7 if requests else 0.35)
    answers["emotion"] = feeling or DONE_WITH_IT[side]
    if feeling:
        sentences.append(draw.choice(phrases["feelings"][feeling]))
    facts, told_facts = _facts(phrases, draw, 0.6 if long else 0.12 if brief else 0.3)
    order = [*body, *sentences, *facts]
    draw.shuffle(order)
    opening = [draw.choice(OPENINGS).format(name)] if draw.random() < (0.2 if brief else 0.6) else []
    return " ".join([sentence[:1].upper() + sentence[1:] for sentence in [*opening, *order]]), answers | told_facts


def _opinions(
    phrases: Mapping[str, Any], kind: Mapping[str, Any], side: str | None, draw: random.Random, long: bool
) -> tuple[list[str], dict[str, str]]:
    """Sentences that judge, and what they praise or criticise."""
    if side is None:
        return [], {}
    known = [*kind[side].items(), *phrases[side].items()]
    aspects = [(aspect, [wording] if isinstance(wording, str) else wording) for aspect, wording in known]
    fewest, most = (4, 7) if long else (1, 2 if phrases.get("brief") else 3)
    drawn = draw.sample(aspects, draw.randint(min(fewest, len(aspects)), min(most, len(aspects))))
    judgements = [draw.choice(sentences) for _, sentences in drawn]
    named = [aspect.partition(" / ") for aspect, _ in drawn[:2]]
    answers = {"praise" if side == "good" else "complaint": " ".join(dict.fromkeys(name for name, _, _ in named))}
    if all(of for _, _, of in named):
        answers["aspect"] = " ".join(dict.fromkeys(of for _, _, of in named))
    answers["recommend"] = "yes" if side == "good" else "no"
    judgements += draw.sample(phrases[f"verdict_{side}"], draw.randint(1, 3) if long else draw.randint(0, 2))
    return judgements, answers


def _feeling(phrases: Mapping[str, Any], side: str | None, draw: random.Random, often: float) -> str | None:
    """A feeling that does not contradict the judgement, or none."""
    if draw.random() > often:
        return None
    dark, neutral = phrases["negative"], phrases["neutral"]
    bright = [phrase for phrase in phrases["feelings"] if phrase not in dark and phrase not in neutral]
    return str(draw.choice({"good": bright, "bad": dark, None: [*bright, *dark, *neutral]}[side]))


def _facts(phrases: Mapping[str, Any], draw: random.Random, often: float) -> tuple[list[str], dict[str, str]]:
    """Sentences beside the point, what they tell, and whether they tell it; a fact may say itself how often it is there."""
    sentences, answers = [], {}
    for fact, table in phrases["facts"].items():
        is_there = draw.random() < table.get("often", often)
        if is_there:
            answers[fact] = draw.choice(table["of"])
            sentences.append(draw.choice(table["says"]).format(answers[fact]))
        if draw.random() < 0.12:
            answers[f"any {fact}"] = "yes" if is_there else "no"
    return sentences, answers


def _question(phrases: Mapping[str, Any], about: str, draw: random.Random) -> str:
    facts = phrases.get("facts", {})
    if about.startswith("any "):
        return str(draw.choice(facts[about[4:]]["any"]))
    return str(draw.choice(facts[about]["ask"] if about in facts else phrases["questions"][about]))
