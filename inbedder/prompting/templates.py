r"""Prompt templates and named instructions, read from ``prompts/*.yaml``.

The default template is the pattern of the InBedder paper (section 5.1)::

    ### Input:\n{input}\n\n### Instruction:\n{instruction}\n\n### Response:

The same object renders the prompts of training and of inference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from inbedder.arguments import entries
from inbedder.errors import InputError, TemplateError
from inbedder.package_data import data_folder

PROMPTS_FOLDER = data_folder("inbedder", "prompts")
DEFAULT_TEMPLATE = "inbedder"
GENERIC_INSTRUCTION = "@generic"

_SLOT = re.compile(r"\{(input|instruction)\}")
_UNIFIED = re.compile(r"Represent the (?P<what>\S[^:\n]*?)(?<!\s)(?<! for)(?: for (?P<objective>\S[^:\n]*)(?<!\s))?:")


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt and where its two parts stand in it."""

    string: str
    """The whole prompt."""
    text: tuple[int, int]
    """Character span (start, end) of the text."""
    instruction: tuple[int, int]
    """Character span (start, end) of the instruction."""


@dataclass(frozen=True)
class PromptTemplate:
    """A pattern that holds ``{input}`` and ``{instruction}`` once each, in any order."""

    name: str
    """The name it is asked for by."""
    pattern: str
    """Fixed text around the two slots. Other braces are plain text."""
    query: str = ""
    """What an embedding model is asked of a query where nobody says anything else."""
    document: str = ""
    """The same of a document."""
    bare: bool = False
    """Whether a text without an instruction stands alone, as embedding models read it."""
    without_input: str = ""
    """The pattern of an empty text, where that is another: it holds {instruction} alone."""

    def __post_init__(self) -> None:
        """Check the slots.

        Raises:
            TemplateError: When a slot is missing or stands twice.
        """
        if self.without_input and _SLOT.findall(self.without_input) != ["instruction"]:
            raise TemplateError(f"Template {self.name!r}: without_input must hold {{instruction}} once and no {{input}}.")
        if sorted(_SLOT.findall(self.pattern)) != ["input", "instruction"]:
            raise TemplateError(
                f"Template {self.name!r} must hold {{input}} and {{instruction}} exactly once each; it is {self.pattern!r}."
            )

    @property
    def fixed_parts(self) -> tuple[str, str, str]:
        """The text before, between and after the two slots."""
        before, _, between, _, after = _SLOT.split(self.pattern)
        return before, between, after

    @property
    def text_first(self) -> bool:
        """Whether the text stands in front of the instruction."""
        return self.pattern.index("{input}") < self.pattern.index("{instruction}")

    def render(self, text: str, instruction: str) -> RenderedPrompt:
        """Fill the slots by position, so that markers or braces inside a text stay plain text.

        Args:
            text: The text to be embedded.
            instruction: What is asked of it.

        Returns:
            The prompt with the character spans of text and instruction.
        """
        if self.bare and not instruction:
            return RenderedPrompt(text, text=(0, len(text)), instruction=(0, 0))
        if self.without_input and not text:
            before, after = self.without_input.split("{instruction}")
            string, start = before + instruction + after, len(before)
            return RenderedPrompt(string, text=(start, start), instruction=(start, start + len(instruction)))
        before, between, after = self.fixed_parts
        first, second = (text, instruction) if self.text_first else (instruction, text)
        first_span = (len(before), len(before) + len(first))
        second_start = first_span[1] + len(between)
        second_span = (second_start, second_start + len(second))
        string = before + first + between + second + after
        if self.text_first:
            return RenderedPrompt(string, text=first_span, instruction=second_span)
        return RenderedPrompt(string, text=second_span, instruction=first_span)

    def instruction_of(self, prompt: str) -> str | None:
        """The instruction of which this template makes the given words in front of a text.

        Args:
            prompt: What stands in front of a text, such as a prompt of sentence-transformers.

        Returns:
            The instruction, "" for an empty prompt, or None where the template makes no such prompt.
        """
        if not prompt:
            return ""
        before, between, after = self.fixed_parts
        fits = prompt.startswith(before) and prompt.endswith(between) and len(prompt) >= len(before) + len(between)
        if after or not fits or self.text_first:
            return None
        return prompt[len(before) : len(prompt) - len(between)]


@cache
def read_prompts(name: str) -> dict[str, Any]:
    """What a file of ``prompts/`` holds: the one reader of templates and of the instructions of tests.

    Args:
        name: Name of the file without .yaml, such as "templates".

    Returns:
        Its table; it is read once and must not be changed.
    """
    return dict(yaml.safe_load((PROMPTS_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def template_names() -> list[str]:
    """Names of the templates in ``prompts/templates.yaml``."""
    return sorted(read_prompts("templates"))


def get_template(template: str | PromptTemplate | None = None) -> PromptTemplate:
    """Look a template up by name, or make one of a pattern.

    Args:
        template: A name, a pattern with both slots, a template, or None for the default.

    Returns:
        The template.

    Raises:
        TemplateError: When it is neither a known name nor a pattern.
    """
    if isinstance(template, PromptTemplate):
        return template
    name = DEFAULT_TEMPLATE if template is None else template
    entry = read_prompts("templates").get(name)
    if isinstance(entry, dict):
        parts: dict[str, Any] = {key: str(value) for key, value in entry.items() if key != "description"}
        return PromptTemplate(name, **parts)
    if _SLOT.search(name):
        return PromptTemplate("custom", name)
    raise TemplateError(
        f"Unknown template {name!r}. Known: {', '.join(template_names())}. "
        "Or give a pattern that holds {input} and {instruction}."
    )


def resolve_instruction(instruction: str | None) -> str:
    """Turn ``@name`` into the instruction of that name; leave every other instruction alone.

    Args:
        instruction: A question, a named instruction such as ``@topic``, or None for ``@generic``.

    Returns:
        The instruction's text.

    Raises:
        TemplateError: When ``@name`` is not in ``prompts/instructions.yaml``.
    """
    instruction = GENERIC_INSTRUCTION if instruction is None else instruction
    if not re.fullmatch(r"@\w+", instruction):
        return instruction
    known = read_prompts("instructions")
    if instruction[1:] not in known:
        raise TemplateError(
            f"Unknown named instruction {instruction!r}. Known: {', '.join('@' + name for name in sorted(known))}. "
            "Or write the question itself."
        )
    return str(known[instruction[1:]])


def check_strings(name: str, values: Any) -> list[str]:
    """Take a list of strings, or say which entry is none.

    Args:
        name: What the argument is called, in the plural.
        values: A list, an array, a column of pandas or Arrow.

    Returns:
        The strings.

    Raises:
        InputError: When it is no list (a bare string, a set, a table), or an entry is not a string.
    """
    rows = entries(name, values)
    for i, value in enumerate(rows):
        if not isinstance(value, str):
            raise InputError(f"{name}: entry {i} is {value!r} ({type(value).__name__}), not a string. Drop or fill such entries.")
    return rows


def check_texts(texts: Any, instruction: Any) -> tuple[list[str], list[str]]:
    """Make lists of texts and instructions, or say which entry is wrong.

    Args:
        texts: One text or several.
        instruction: One for all texts, one per text, or None.

    Returns:
        n texts and n instructions, named ones resolved.

    Raises:
        InputError: When an entry is not a string, or the lists differ in length.
    """
    rows = [texts] if isinstance(texts, str) else check_strings("texts", texts)
    if instruction is None or isinstance(instruction, str):
        return rows, [resolve_instruction(instruction)] * len(rows)
    instructions = check_strings("instructions", instruction)
    if len(instructions) != len(rows):
        raise InputError(f"{len(rows)} texts but {len(instructions)} instructions: give one instruction, or one per text.")
    return rows, [resolve_instruction(instruction) for instruction in instructions]


def represent(text_type: str, *, domain: str | None = None, objective: str | None = None) -> str:
    """Build an instruction in INSTRUCTOR's unified format: "Represent the (domain) text type for task objective:".

    INSTRUCTOR paper, section 2.3 and table 4. The authors' code puts the text directly behind the colon.

    Args:
        text_type: What the texts are, such as "question", "review" or "document".
        domain: Where they come from, such as "Wikipedia" or "medicine".
        objective: What the vectors are for, such as "retrieving supporting documents".

    Returns:
        The instruction, such as "Represent the Wikipedia question for retrieving supporting documents:".

    Raises:
        InputError: When a part is empty, holds a colon or a line break, or repeats a word that the format brings.
    """
    parts = {"text_type": text_type, "domain": domain, "objective": objective}
    brought = {"text_type": ("represent", "the"), "domain": ("represent", "the"), "objective": ("for",)}
    for name, part in parts.items():
        if part is None and name != "text_type":
            continue
        if not isinstance(part, str) or not part.strip() or re.search(r"[:\n\r]", part):
            raise InputError(f"{name} must be a few words without a colon or a line break, not {part!r}.")
        if part.split()[0].lower() in brought[name]:
            raise InputError(f"{name}={part!r}: leave out {part.split()[0]!r}, the format brings it.")
    what = " ".join(part.strip() for part in (domain, text_type) if part is not None)
    return f"Represent the {what}{f' for {objective.strip()}' if objective is not None else ''}:"


def check_represented(instruction: str) -> tuple[str, str | None]:
    """Check that an instruction is in INSTRUCTOR's unified format.

    Args:
        instruction: Such as "Represent the Wikipedia question for retrieving supporting documents:"; space around it is allowed.

    Returns:
        Its domain and text type ("Wikipedia question"), and its objective ("retrieving supporting documents") or None.

    Raises:
        InputError: When it is not in the format.
    """
    match = _UNIFIED.fullmatch(instruction.strip())
    if match is None:
        raise InputError(
            f"{instruction!r} is not of the form 'Represent the (domain) text type for task objective:'. "
            "Build it with inbedder.prompting.templates.represent(text_type, domain=..., objective=...)."
        )
    return match["what"], match["objective"]


@dataclass(frozen=True)
class DefaultInstructions:
    """What is asked where the user gives no instruction; "" is nothing, None is left to ``encode``."""

    any: str = GENERIC_INSTRUCTION
    """Of ``encode``."""
    query: str | None = None
    """Of ``encode_query``."""
    document: str | None = None
    """Of ``encode_document``."""


def default_instructions(template: PromptTemplate, prompts: Mapping[str, str] | None) -> DefaultInstructions:
    """Choose what a model is asked where the user gives no instruction.

    Args:
        template: How prompts are made.
        prompts: For embedding models the checkpoint's own prompts, by "query", "document" and "" (any text); None for others.

    Returns:
        For a model that answers ``@generic`` throughout. For an embedding model its own prompts, as far as the template makes
        such prompts; where it has none for queries and documents, the template's instructions for these.
    """
    if prompts is None:
        return DefaultInstructions()
    found = {
        name: instruction for name, prompt in prompts.items() if (instruction := template.instruction_of(prompt)) is not None
    }
    if "query" in found or "document" in found:
        return DefaultInstructions(found.get("", ""), found.get("query", ""), found.get("document", ""))
    return DefaultInstructions(found.get("", ""), template.query, template.document)
