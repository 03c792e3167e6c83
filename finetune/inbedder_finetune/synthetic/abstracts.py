"""Abstracts composed of phrases: what was studied, in whom, how, and with what result.

Factor, outcome, design and direction of the result are sampled independently, so two abstracts of one field may agree under one
question and differ under another. ``written/studies.yaml`` holds the phrases.
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


def compose_abstract(phrases: Phrases, rng: random.Random) -> tuple[str, dict[str, str]]:
    """Compose one abstract.

    Args:
        phrases: Content of ``written/studies.yaml``.
        rng: Random number generator.

    Returns:
        The abstract, and its answers by aspect.
    """
    field = rng.choice(phrases["fields"])
    kind = rng.choice(field["how"])
    designs, details = phrases["designs"][kind], [*phrases["details"], *phrases["more_details"].get(kind, ())]
    method, direction = rng.choice(sorted(designs)), rng.choice(sorted(phrases["results"]))
    words = {name: rng.choice(field[name]) for name in ("topic", "factor", "outcome", "who")} | _choose_numbers(rng)
    words["place"] = rng.choice(phrases["places"])
    sentences = [
        *rng.sample(phrases["backgrounds"], rng.randint(0, 3)),
        *rng.sample(phrases["aims"], rng.randint(0, 2)),
        rng.choice(designs[method]),
        *rng.sample(details, rng.randint(1, 5)),
        *rng.sample(phrases["results"][direction], rng.randint(1, 2)),
        *rng.sample(phrases["more_results"], rng.randint(0, 3)),
    ]
    if not any("{topic}" in sentence for sentence in sentences):
        sentences.insert(0, rng.choice([sentence for sentence in phrases["backgrounds"] if "{topic}" in sentence]))
    text = " ".join(_start_sentence(sentence.format(**words)) for sentence in sentences)
    answers = {
        "problem": "{factor} {outcome} {topic}".format(**words),
        "result": FINDINGS[direction].format(**words),
        "method": method,
        "field": field["is"],
        "factor": words["factor"],
        "outcome": words["outcome"],
        "direction": direction,
    }
    frames = " ".join(sentences)
    stated_words = {name: words[name] for name in ("who", "place") if f"{{{name}}}" in frames}
    return text, answers | stated_words


def _choose_numbers(rng: random.Random) -> dict[str, str]:
    year, percent = rng.randint(1985, 2012), rng.randint(30, 95)
    numbers = {"year": year, "later": year + rng.randint(2, 9), "percent": percent, "less": rng.randint(10, percent - 10)}
    numbers |= {"n": rng.randint(20, 2400), "small": rng.randint(8, 48), "months": rng.randint(3, 36)}
    return {name: str(number) for name, number in (numbers | {"age": rng.randint(19, 82), "digit": rng.randint(1, 9)}).items()}


def _start_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
