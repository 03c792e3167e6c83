"""Questions reworded as INSTRUCTOR's training prompts: "Represent the (domain) text type for task objective: ".

INSTRUCTOR's models were never trained on questions, so a question does not measure them fairly (INSTRUCTOR paper,
section 2.3 and table 4). ``prompts/represent.yaml`` holds the prompt for each test's question.
"""

from __future__ import annotations

from inbedder.prompting.templates import get_template, read_prompts


def to_instructor_prompt(instruction: str) -> str:
    """Reword an instruction as an INSTRUCTOR prompt.

    Args:
        instruction: Any question, an INSTRUCTOR prompt, or an empty string.

    Returns:
        The prompt in ``prompts/represent.yaml``, or the form of the template ``instructor`` for a question that is not listed;
        both end in a space, so that the text can follow. INSTRUCTOR prompts and empty strings are returned unchanged.
    """
    if not instruction.strip() or instruction.startswith("Represent "):
        return instruction
    form = read_prompts("represent")["questions"].get(instruction)
    return str(form) if form else get_template("instructor").format_question(f"{instruction}?")
