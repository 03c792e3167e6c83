"""Short forms of INSTRUCTOR's instructions, as in the paper's figure 5: the name of the data set, or domain and text type."""

from __future__ import annotations

import re

_TEXT_TYPE = re.compile(r"represent\s+(?:the\s+|an?\s+)?(.+?)(?:\s+(?:for|to|as)\s.*|[:;,.]*\s*)", re.IGNORECASE | re.DOTALL)


def make_tag(name: str) -> str:
    """Make an instruction of the name of a data set.

    Args:
        name: The name.

    Returns:
        The instruction, which ends in a space.

    Example:
        >>> make_tag("Natural Questions")
        'Natural Questions; Input: '
    """
    return f"{name}; Input: "


def shorten_instruction(instruction: str) -> str:
    """Keep only the domain and the text type of an instruction.

    Args:
        instruction: An instruction that begins with "Represent the".

    Returns:
        These one or two words, in the paper's form.

    Raises:
        ValueError: If the instruction has another form.

    Example:
        >>> shorten_instruction("Represent the Wikipedia question for retrieving supporting documents: ")
        'Wikipedia question; Input: '
    """
    match = _TEXT_TYPE.fullmatch(instruction)
    if match is None:
        raise ValueError(f"the instruction {instruction[:60]!r} does not begin with 'Represent the', so it has no short form")
    return f"{match[1]}; Input: "
