"""One content said in many forms: texts that agree in content differ in form, and texts that agree in form differ in content.

A sentence is either written out for the content and the form, or made of one of the form's frames, which say any content.
``written/forms.yaml`` holds contents, forms and frames.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from inbedder_finetune.questions import read_questions

Phrases = Mapping[str, Any]
FRAMED_SHARE = 0.4
"""Share of the texts that are made of frames."""


def compose_form(phrases: Phrases, rng: random.Random) -> tuple[str, dict[str, str]]:
    """Compose a text that says a content in a form.

    Args:
        phrases: Content of ``written/forms.yaml``.
        rng: Random number generator.

    Returns:
        The text, and its answers by aspect: those of the content, and those of the form.
    """
    content, forms = rng.choice(phrases["contents"]), phrases["forms"]
    if rng.random() < FRAMED_SHARE:
        form = rng.choice(sorted(forms))
        slots = {name: content[name] for name in ("do", "matter", "fact")}
        slots |= {name.capitalize(): _start_sentence(words) for name, words in slots.items()}
        text = rng.choice(forms[form]["says"]).format(**slots)
    else:
        form = rng.choice([name for name in sorted(forms) if name in content])
        text = content[form]
    return text, {"about": content["about"], "area": content["area"]} | forms[form]["is"]


def read_wordings(questions: Mapping[str, str | list[str]]) -> dict[str, list[str]]:
    """Read the wordings of questions that are given by name.

    Args:
        questions: Aspect -> wordings, or the name of a question of the folder ``questions``.

    Returns:
        Aspect -> wordings.
    """
    return {
        aspect: read_questions()[question].ask if isinstance(question, str) else question
        for aspect, question in questions.items()
    }


def _start_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
