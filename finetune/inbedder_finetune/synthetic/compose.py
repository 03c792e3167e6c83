"""Texts composed of phrases, with questions about independent aspects.

Real data sets ask few questions per text, and the aspects of a text are correlated: a complaint about a flight is negative and
about travel. A model can then answer without reading the question. In a composed text the kind of thing, the judgement, the
feeling, the request and the facts are sampled independently, and several questions are asked about each text.

The phrases are in ``finetune/written``: reviews and letters (``opinions.yaml``), reviews of services (``services.yaml``),
complaints to transport companies (``complaints.yaml``), short requests (``requests.yaml``), captions (``scenes.yaml``), abstracts
(``studies.yaml``), titles (``titles.yaml``), everyday contents in many forms (``forms.yaml``), and reviews in German, French,
Spanish and Portuguese (``opinions-de.yaml``, ...).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from inbedder.runtime.package_data import find_data_folder
from inbedder_finetune.synthetic.abstracts import compose_abstract
from inbedder_finetune.synthetic.captions import compose_caption
from inbedder_finetune.synthetic.captions import make_question as make_caption_question
from inbedder_finetune.synthetic.forms import compose_form, read_wordings

WRITTEN_FOLDER = find_data_folder("inbedder_finetune", "written")
OPENINGS = (
    "{0}.",
    "About the {0}.",
    "This is about the {0}.",
    "I want to tell you about the {0}.",
    "Let me say something of my {0}.",
)
IMPLIED_FEELINGS = {"good": "happiness satisfaction", "bad": "frustration disappointment", None: "calm"}
POLARITY_NAMES = {"good": "positive", "bad": "negative", None: "neutral"}


def compose(path: Path, rows: int | None = None, seed: int = 0, questions_per_text: int = 2) -> Iterator[dict[str, str]]:
    """Compose texts and the questions that they answer.

    Args:
        path: A YAML file of phrases, such as ``written/opinions.yaml``. Its keys decide what is composed: captions with
            ``animals``, abstracts with ``designs``, titles with ``titles``, requests with ``areas``, contents in many forms with
            ``forms``, opinions otherwise.
        rows: Number of rows; None takes the file's ``rows``.
        seed: Random seed.
        questions_per_text: Maximum number of questions per text.

    Yields:
        Records with input, instruction and output.

    Example:
        >>> rows = list(compose(WRITTEN_FOLDER / "titles.yaml", rows=4))
        >>> len(rows), sorted(rows[0])
        (4, ['input', 'instruction', 'output'])
    """
    phrases = read_phrases(path)
    phrases["questions"] = read_wordings(phrases["questions"])
    rng = random.Random(f"{seed} {path.name}")
    remaining = phrases["rows"] if rows is None else rows
    while remaining > 0:
        words: tuple[str, ...] = ()
        if "animals" in phrases:
            text, answers, words = compose_caption(phrases, rng)
        elif "designs" in phrases:
            text, answers = compose_abstract(phrases, rng)
        elif "titles" in phrases:
            text, answers = _compose_title(phrases, rng)
        elif "areas" in phrases:
            text, answers = _compose_request(phrases, rng)
        elif "forms" in phrases:
            text, answers = compose_form(phrases, rng)
        else:
            text, answers = _compose_opinion(phrases, rng)
        aspects = rng.sample(sorted(answers), min(questions_per_text, len(answers), remaining))
        for aspect in aspects:
            question = make_caption_question(phrases, aspect, words, rng) if words else _make_question(phrases, aspect, rng)
            yield {"input": text, "instruction": question, "output": answers[aspect]}
        remaining -= len(aspects)


def read_phrases(path: Path) -> dict[str, Any]:
    """Read a file of phrases, merged into the file that it ``extends``."""
    phrases = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    base = phrases.pop("extends", None)
    return read_phrases(path.parent / base) | phrases if base else phrases


def _compose_title(phrases: Mapping[str, Any], rng: random.Random) -> tuple[str, dict[str, str]]:
    """Compose a subject line; returns the line and its answers by aspect."""
    field = rng.choice(phrases["fields"])
    items = field.get("things", ())
    purpose, ways = rng.choice(sorted(phrases["titles"].items()))
    while not items and all("{thing}" in way for way in ways):
        purpose, ways = rng.choice(sorted(phrases["titles"].items()))
    form = rng.choice([way for way in ways if len(items) > 1 or "{thing}" not in way or (items and "{other}" not in way)])
    matters = dict(zip("ab", rng.sample(field["matters"], 2), strict=True))
    named_things = dict(zip(("thing", "other"), rng.sample(items, min(2, len(items))), strict=False))
    line = form.format(**matters, **named_things)
    line = rng.choice([line, line, line, line.lower(), line.upper(), f"Re: {line}", f"Re: {line}"])
    return line[:1].upper() + line[1:], {"subject": field["is"], "purpose": purpose}


def _compose_request(phrases: Mapping[str, Any], rng: random.Random) -> tuple[str, dict[str, str]]:
    """Compose a short message with a request; returns the message and its answers by aspect."""
    is_wrong = rng.random() < 0.4
    if rng.random() < 0.5:
        area, items = rng.choice(sorted(phrases["things"].items()))
        thing = rng.choice(items)
        deed, ways = rng.choice(sorted(phrases["failures" if is_wrong else "deeds"].items()))
        intent, text = deed.format(thing), rng.choice(ways).format(thing)
    else:
        requests = rng.choice(phrases["areas"])
        area, is_wrong = requests["area"], is_wrong and "wrong" in requests
        intent, ways = rng.choice(sorted(requests["wrong" if is_wrong else "wanted"].items()))
        text = rng.choice(ways)
    if text[-1] not in ".!?":
        text = rng.choice(phrases["frames"]).format(text)
    if is_wrong:
        text = f"{text} {rng.choice(phrases['wrong_ends'])}".strip()
    answers = {"intent": intent, "area": area} | ({"complaint": intent} if is_wrong else {})
    if rng.random() < 0.3:
        answers["wrong"] = "yes" if is_wrong else "no"
    before: list[str] = []
    after: list[str] = []
    if rng.random() < 0.6:
        answers["emotion"] = rng.choice(sorted(phrases["feelings"]))
        for sentence in rng.sample(phrases["feelings"][answers["emotion"]], rng.choice([1, 1, 2])):
            if "{0}" in sentence:
                text = sentence.format(text)
            else:
                rng.choice([before, after]).append(sentence)
        if answers["emotion"] not in phrases["undecided"]:
            is_upset = answers["emotion"] in phrases["upset"]
            answers |= rng.choice([{"side": "upset" if is_upset else "happy"}, {"upset": "yes" if is_upset else "no"}, {}])
    if rng.random() < 0.25:
        rng.choice([before, after]).append(rng.choice(phrases["asides"]))
    message = " ".join([*before, text, *after])
    return (message.lower().rstrip(".?!") if rng.random() < 0.25 else message[:1].upper() + message[1:]), answers


def _compose_opinion(phrases: Mapping[str, Any], rng: random.Random) -> tuple[str, dict[str, str]]:
    """Compose a text that judges a thing or asks for one; returns the text and its answers by aspect."""
    kind = rng.choice(phrases["kinds"])
    name = rng.choice(kind["is"])
    has_request = bool(kind.get("asks")) and rng.random() < 0.45
    side = rng.choice([None, "good", "bad"]) if has_request else rng.choice([None, "good", "good", "bad", "bad"])
    sentences, answers = _compose_judgements(phrases, kind, side, rng)
    is_brief = bool(phrases.get("brief"))
    statements = kind["says"]
    min_count, max_count = 0 if has_request or (is_brief and side) else 1, 1 if is_brief else len(statements)
    body = rng.sample(statements, rng.randint(min_count, max_count))
    if has_request:
        answers["intent"], request = rng.choice(sorted(kind["asks"].items()))
        body.append(request if isinstance(request, str) else rng.choice(request))
    answers |= {
        "name": name,
        "group": name if kind["group"] == name else f"{kind['group']} {name}",
        "polarity": POLARITY_NAMES[side],
    }
    feeling = _choose_feeling(phrases, side, rng, probability=0.7 if has_request else 0.35)
    answers["emotion"] = feeling or IMPLIED_FEELINGS[side]
    if feeling:
        sentences.append(rng.choice(phrases["feelings"][feeling]))
    facts, fact_answers = _compose_facts(phrases, rng, 0.12 if is_brief else 0.3)
    order = [*body, *sentences, *facts]
    rng.shuffle(order)
    opening = [rng.choice(phrases.get("openings", OPENINGS)).format(name)] if rng.random() < (0.2 if is_brief else 0.6) else []
    return " ".join([sentence[:1].upper() + sentence[1:] for sentence in [*opening, *order]]), answers | fact_answers


def _compose_judgements(
    phrases: Mapping[str, Any], kind: Mapping[str, Any], side: str | None, rng: random.Random
) -> tuple[list[str], dict[str, str]]:
    """Compose sentences that judge; returns them, and what they praise or criticise by aspect."""
    if side is None:
        return [], {}
    wordings = [*kind[side].items(), *phrases[side].items()]
    aspects = [(aspect, [wording] if isinstance(wording, str) else wording) for aspect, wording in wordings]
    max_count = 2 if phrases.get("brief") else 3
    sample = rng.sample(aspects, rng.randint(1, min(max_count, len(aspects))))
    judgements = [rng.choice(sentences) for _, sentences in sample]
    parts = [aspect.partition(" / ") for aspect, _ in sample[:2]]
    answers = {"praise" if side == "good" else "complaint": " ".join(dict.fromkeys(name for name, _, _ in parts))}
    if all(group for _, _, group in parts):
        answers["aspect"] = " ".join(dict.fromkeys(group for _, _, group in parts))
    answers["recommend"] = "yes" if side == "good" else "no"
    judgements += rng.sample(phrases[f"verdict_{side}"], rng.randint(0, 2))
    return judgements, answers


def _choose_feeling(phrases: Mapping[str, Any], side: str | None, rng: random.Random, probability: float) -> str | None:
    """Choose a feeling that does not contradict the judgement, with some probability."""
    if rng.random() > probability:
        return None
    dark, neutral = phrases["negative"], phrases["neutral"]
    bright = [phrase for phrase in phrases["feelings"] if phrase not in dark and phrase not in neutral]
    return str(rng.choice({"good": bright, "bad": dark, None: [*bright, *dark, *neutral]}[side]))


def _compose_facts(phrases: Mapping[str, Any], rng: random.Random, probability: float) -> tuple[list[str], dict[str, str]]:
    """Compose sentences that state facts; returns them, and their answers. A fact's own ``often`` overrides the probability."""
    sentences, answers = [], {}
    for fact, table in phrases["facts"].items():
        is_stated = rng.random() < table.get("often", probability)
        if is_stated:
            answers[fact] = rng.choice(table["of"])
            sentences.append(rng.choice(table["says"]).format(answers[fact]))
        if rng.random() < 0.12:
            answers[f"any {fact}"] = "yes" if is_stated else "no"
    return sentences, answers


def _make_question(phrases: Mapping[str, Any], aspect: str, rng: random.Random) -> str:
    """Choose a wording of the question about an aspect."""
    facts = phrases.get("facts", {})
    if aspect.startswith("any "):
        return str(rng.choice(facts[aspect[4:]]["any"]))
    return str(rng.choice(facts[aspect]["ask"] if aspect in facts else phrases["questions"][aspect]))
