"""Abstracts composed of written phrases: what was studied, in whom, how, and what came out.

Factor, outcome, design and direction of the result are drawn apart, so that two abstracts of one field agree under one question
and differ under another. ``written/studies.yaml`` holds the phrases.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Phrases = Mapping[str, Any]
FINDINGS = {
    "higher": "{outcome} higher with {factor}",
    "lower": "{outcome} lower with {factor}",
    "unchanged": "no effect of {factor} on {outcome}",
    "mixed": "effect of {factor} on {outcome} in some only",
}


def study(phrases: Phrases, draw: random.Random) -> tuple[str, dict[str, str]]:
    """Draw one abstract.

    Args:
        phrases: What ``written/studies.yaml`` holds.
        draw: The source of chance.

    Returns:
        The abstract, and its answers by question.
    """
    field = draw.choice(phrases["fields"])
    kind = draw.choice(field["how"])
    designs, details = phrases["designs"][kind], [*phrases["details"], *phrases["more_details"].get(kind, ())]
    method, direction = draw.choice(sorted(designs)), draw.choice(sorted(phrases["results"]))
    words = {name: draw.choice(field[name]) for name in ("topic", "factor", "outcome", "who")} | _numbers(draw)
    words["place"] = draw.choice(phrases["places"])
    sentences = [
        *draw.sample(phrases["backgrounds"], draw.randint(0, 3)),
        *draw.sample(phrases["aims"], draw.randint(0, 2)),
        draw.choice(designs[method]),
        *draw.sample(details, draw.randint(1, 5)),
        *draw.sample(phrases["results"][direction], draw.randint(1, 2)),
        *draw.sample(phrases["more_results"], draw.randint(0, 3)),
    ]
    if not any("{topic}" in sentence for sentence in sentences):
        sentences.insert(0, draw.choice([sentence for sentence in phrases["backgrounds"] if "{topic}" in sentence]))
    text = " ".join(_sentence(sentence.format(**words)) for sentence in sentences)
    answers = {
        "problem": "{factor} {outcome} {topic}".format(**words),
        "result": FINDINGS[direction].format(**words),
        "method": method,
        "field": field["is"],
        "factor": words["factor"],
        "outcome": words["outcome"],
        "direction": direction,
    }
    drawn = " ".join(sentences)
    told = {name: words[name] for name in ("who", "place") if f"{{{name}}}" in drawn}
    return text, answers | told


def _numbers(draw: random.Random) -> dict[str, str]:
    year, percent = draw.randint(1985, 2012), draw.randint(30, 95)
    numbers = {"year": year, "later": year + draw.randint(2, 9), "percent": percent, "less": draw.randint(10, percent - 10)}
    numbers |= {"n": draw.randint(20, 2400), "small": draw.randint(8, 48), "months": draw.randint(3, 36)}
    return {name: str(number) for name, number in (numbers | {"age": draw.randint(19, 82), "digit": draw.randint(1, 9)}).items()}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
