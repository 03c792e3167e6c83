"""Questions in the words that INSTRUCTOR's models were trained on: "Represent the (domain) text type for task objective: ".

A contrastive instructed encoder has never read a question as its instruction, so asking it one measures something else than the
model (INSTRUCTOR paper, section 2.3 and table 4). ``prompts/represent.yaml`` has the form of each test's question.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from inbedder.prompting.templates import read_prompts


@cache
def _read_forms() -> dict[str, Any]:
    return read_prompts("represent")


def to_instructor_prompt(instruction: str) -> str:
    """An instruction as INSTRUCTOR would be asked it.

    Args:
        instruction: A question of a test, or any other; one that is in INSTRUCTOR's words, and none ("").

    Returns:
        The form in ``prompts/represent.yaml``, a general one for a question that is not there; these two end in a space, behind
        which the text stands. Other instructions come back as they are.
    """
    if not instruction.strip() or instruction.startswith("Represent the "):
        return instruction
    forms = _read_forms()
    form = forms["questions"].get(instruction)
    if form:
        return str(form)
    question = " ".join(instruction.replace(":", ",").split()).rstrip("?.!, ")
    return str(forms["other"]).format(question=question)
