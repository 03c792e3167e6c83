"""Questions reworded as INSTRUCTOR's training prompts: "Represent the (domain) text type for task objective: ".

INSTRUCTOR's models were never trained on questions, so a question does not measure them fairly (INSTRUCTOR paper,
section 2.3 and table 4). ``prompts/represent.yaml`` holds the prompt for each test's question.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from inbedder.prompting.templates import read_prompts


@cache
def _read_forms() -> dict[str, Any]:
    return read_prompts("represent")


def to_instructor_prompt(instruction: str) -> str:
    """Reword an instruction as an INSTRUCTOR prompt.

    Args:
        instruction: Any question, an INSTRUCTOR prompt, or an empty string.

    Returns:
        The prompt in ``prompts/represent.yaml``, or a general one for a question that is not listed; both end in a space, so
        that the text can follow. INSTRUCTOR prompts and empty strings are returned unchanged.
    """
    if not instruction.strip() or instruction.startswith("Represent the "):
        return instruction
    forms = _read_forms()
    form = forms["questions"].get(instruction)
    if form:
        return str(form)
    question = " ".join(instruction.replace(":", ",").split()).rstrip("?.!, ")
    return str(forms["other"]).format(question=question)
