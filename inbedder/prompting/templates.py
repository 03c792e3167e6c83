r"""Prompt templates and named instructions from ``prompts/*.yaml``.

The default template is the pattern of the InBedder paper (section 5.1)::

    ### Input:\n{input}\n\n### Instruction:\n{instruction}\n\n### Response:

Training and inference render their prompts with the same object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from inbedder.arguments import check_list, reject_pairs
from inbedder.errors import InputError, TemplateError
from inbedder.runtime.package_data import find_data_folder

PROMPTS_FOLDER = find_data_folder("inbedder", "prompts")
DEFAULT_TEMPLATE = "inbedder"
GENERIC_INSTRUCTION = "@generic"

_SLOT = re.compile(r"\{(input|instruction)\}")
_UNIFIED = re.compile(r"Represent the (?P<what>\S[^:\n]*?)(?<!\s)(?<! for)(?: for (?P<objective>\S[^:\n]*)(?<!\s))?:")


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt and the spans of its two parts."""

    string: str
    """The whole prompt."""
    text: tuple[int, int]
    """Character span (start, end) of the text."""
    instruction: tuple[int, int]
    """Character span (start, end) of the instruction."""


@dataclass(frozen=True)
class PromptTemplate:
    """A pattern with one slot ``{input}`` and one slot ``{instruction}``, in any order.

    Example:
        >>> from inbedder import PromptTemplate
        >>> template = PromptTemplate("mine", "Text: {input} Question: {instruction} Answer:")
        >>> template.render("I love cats", "What animals?").string
        'Text: I love cats Question: What animals? Answer:'
    """

    name: str
    """Its name in options and messages."""
    pattern: str
    """Fixed text around the two slots. Other braces are plain text."""
    query: str = ""
    """An embedding model's default instruction for queries."""
    document: str = ""
    """An embedding model's default instruction for documents."""
    without_template: bool = False
    """Whether a text without an instruction is the whole prompt, as embedding models read it."""
    without_input: str = ""
    """The pattern for an empty text, with the slot {instruction} only; "" means the same pattern."""
    question: str = ""
    """The form of a question, with the slot {question}, for models trained on other prompts; "" leaves it as it is."""
    system: str | None = None
    """The system message, "" for none, if the pattern is the user message of the tokenizer's chat template; otherwise None."""
    opening: str = ""
    """What the chat template writes before the user message, filled in for a model."""
    closing: str = ""
    """What it writes after the user message."""
    strips: bool = False
    """Whether it strips the user message."""

    def __post_init__(self) -> None:
        """Check the slots.

        Raises:
            TemplateError: If a slot is missing or repeated, or a part of the chat template is not text.
        """
        if not all(isinstance(part, str) for part in (self.opening, self.closing, "" if self.system is None else self.system)):
            raise TemplateError(f"Template {self.name!r}: what a chat template writes must be text.")
        if self.without_input and _SLOT.findall(self.without_input) != ["instruction"]:
            raise TemplateError(f"Template {self.name!r}: without_input must hold {{instruction}} once and no {{input}}.")
        if sorted(_SLOT.findall(self.pattern)) != ["input", "instruction"]:
            raise TemplateError(
                f"Template {self.name!r} must hold {{input}} and {{instruction}} exactly once each; it is {self.pattern!r}."
            )

    @property
    def fixed_parts(self) -> tuple[str, str, str]:
        """The text before, between and after the two slots."""
        opening, _, middle, _, closing = _SLOT.split(self.pattern)
        return self.opening + opening, middle, closing + self.closing

    @property
    def text_first(self) -> bool:
        """Whether the text comes before the instruction."""
        return self.pattern.index("{input}") < self.pattern.index("{instruction}")

    def render(self, text: str, instruction: str) -> RenderedPrompt:
        r"""Fill the slots by position, so that markers and braces inside a text stay plain text.

        Args:
            text: The text to embed.
            instruction: The instruction about it.

        Returns:
            The prompt with the character spans of text and instruction.

        Example:
            >>> from inbedder.prompting.templates import get_template
            >>> prompt = get_template("compact").render("I love {cats}", "What animals?")
            >>> prompt.string
            'I love {cats}\nWhat animals?'
            >>> prompt.string[slice(*prompt.instruction)]
            'What animals?'
        """
        instruction = self.format_question(instruction)
        if self.without_template and not instruction:
            return RenderedPrompt(text, text=(0, len(text)), instruction=(0, 0))
        if self.without_input and not text:
            opening, closing = self.without_input.split("{instruction}")
            string, start = opening + instruction + closing, len(opening)
            return self._wrap(RenderedPrompt(string, text=(start, start), instruction=(start, start + len(instruction))))
        opening, _, middle, _, closing = _SLOT.split(self.pattern)
        first, second = (text, instruction) if self.text_first else (instruction, text)
        first_span = (len(opening), len(opening) + len(first))
        second_start = first_span[1] + len(middle)
        second_span = (second_start, second_start + len(second))
        string = opening + first + middle + second + closing
        if self.text_first:
            return self._wrap(RenderedPrompt(string, text=first_span, instruction=second_span))
        return self._wrap(RenderedPrompt(string, text=second_span, instruction=first_span))

    def _wrap(self, message: RenderedPrompt) -> RenderedPrompt:
        """Put a user message between what the chat template writes around it; without one it stays as it is."""
        string = message.string.strip() if self.strips else message.string
        num_stripped = len(message.string) - len(message.string.lstrip()) if self.strips else 0
        (text_start, text_end), (start, end) = (
            tuple(len(self.opening) + min(max(index - num_stripped, 0), len(string)) for index in span)
            for span in (message.text, message.instruction)
        )
        return RenderedPrompt(self.opening + string + self.closing, text=(text_start, text_end), instruction=(start, end))

    def format_question(self, instruction: str) -> str:
        """Reword a question in the words of a model's training prompts.

        Args:
            instruction: Any instruction.

        Returns:
            A question in the template's ``question`` form; an instruction that does not end in a question mark, unchanged.

        Example:
            >>> from inbedder.prompting.templates import get_template
            >>> get_template("instructor").format_question("What is it about?")
            'Represent the text for answering the question What is it about: '
        """
        words = " ".join(instruction.replace(":", ",").split()).rstrip("?？؟.!, ")
        if not self.question or not words or not instruction.rstrip().endswith(("?", "？", "؟")):
            return instruction
        return self.question.format(question=words)

    def extract_instruction(self, prompt: str) -> str | None:
        r"""Extract the instruction from the words before a text.

        Args:
            prompt: The words before a text, such as a prompt of sentence-transformers.

        Returns:
            The instruction that this template renders to these words, "" for an empty prompt, or None if there is none.

        Example:
            >>> from inbedder.prompting.templates import get_template
            >>> get_template("e5-instruct").extract_instruction("Instruct: Find it\nQuery: ")
            'Find it'
        """
        if not prompt:
            return ""
        opening, middle, closing = self.fixed_parts
        fits = prompt.startswith(opening) and prompt.endswith(middle) and len(prompt) >= len(opening) + len(middle)
        instruction = prompt[len(opening) : len(prompt) - len(middle)]
        if closing or not fits or self.text_first or self.format_question(instruction) != instruction:
            return None
        return instruction


@cache
def read_prompts(name: str) -> dict[str, Any]:
    """Read a file of ``prompts/``, named without .yaml; its mapping is cached, and callers must not change it."""
    return dict(yaml.safe_load((PROMPTS_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def list_template_names() -> list[str]:
    """List the names of the templates in ``prompts/templates.yaml``, sorted."""
    return sorted(read_prompts("templates"))


def get_template(template: str | PromptTemplate | None = None) -> PromptTemplate:
    """Look up a template by name, or make one from a pattern with both slots; None gives the default."""
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
        f"Unknown template {name!r}. Known: {', '.join(list_template_names())}. "
        "Or give a pattern that holds {input} and {instruction}."
    )


def resolve_instruction(instruction: str | None) -> str:
    """Replace ``@name`` by the instruction of that name; return any other instruction unchanged.

    Args:
        instruction: A question, a named instruction such as ``@topic``, or None for ``@generic``.

    Returns:
        The instruction's text.

    Raises:
        TemplateError: If ``@name`` is not in ``prompts/instructions.yaml``.
    """
    instruction = GENERIC_INSTRUCTION if instruction is None else instruction
    if not re.fullmatch(r"@[\w-]+", instruction):
        return instruction
    instructions = read_prompts("instructions")
    if instruction[1:] not in instructions:
        raise TemplateError(
            f"Unknown named instruction {instruction!r}. Known: {', '.join('@' + name for name in sorted(instructions))}. "
            "Or give the question itself."
        )
    return str(instructions[instruction[1:]])


def skip_blank(instruction: Any) -> Any:
    """Return None for a blank instruction, which asks no question, and others unchanged; reject a blank one among several."""
    if isinstance(instruction, str) or instruction is None:
        return instruction if instruction and instruction.strip() else None
    instructions = check_strings("instructions", instruction)
    if blank := [number for number, text in enumerate(instructions) if not text.strip()]:
        raise InputError(f"instructions: entry {blank[0]} is blank. Ask a question, or pass None for all texts.")
    return instructions


def check_question(instruction: Any) -> None:
    """Reject a blank instruction of groups or categories."""
    if isinstance(instruction, str) and not instruction.strip():
        raise InputError("The question is empty. Ask one, or pass None to read the texts without a question.")


def check_strings(name: str, values: Any) -> list[str]:
    """Check that all values are strings.

    Args:
        name: The argument's name in messages, in the plural.
        values: A list, an array, or a column of pandas or Arrow.

    Returns:
        The strings.

    Raises:
        InputError: If ``values`` is not a list (but a single string, a set or a table), or an entry is not a string.
    """
    rows = check_list(name, values)
    for i, value in enumerate(rows):
        if not isinstance(value, str):
            raise InputError(f"{name}: entry {i} is {value!r} ({type(value).__name__}), not a string. Drop or fill such entries.")
    return rows


def check_texts(texts: Any, instruction: Any) -> tuple[list[str], list[str]]:
    """Check texts and instructions, and return both as lists of one length.

    Args:
        texts: One text or several.
        instruction: One for all texts, one per text, or None.

    Returns:
        n texts and n instructions, named ones resolved.

    Raises:
        InputError: If an entry is not a string, or the lists differ in length.
    """
    rows = [texts] if isinstance(texts, str) else check_strings("texts", reject_pairs(check_list("texts", texts)))
    if instruction is None or isinstance(instruction, str):
        return rows, [resolve_instruction(instruction)] * len(rows)
    instructions = check_strings("instructions", instruction)
    if len(instructions) != len(rows):
        raise InputError(f"{len(rows)} texts but {len(instructions)} instructions: give one instruction, or one per text.")
    return rows, [resolve_instruction(instruction) for instruction in instructions]


def represent(text_type: str, *, domain: str | None = None, objective: str | None = None) -> str:
    """Build an instruction in INSTRUCTOR's unified format: "Represent the (domain) text type for task objective:".

    INSTRUCTOR paper, section 2.3 and table 4. The authors' code puts the text directly after the colon.

    Args:
        text_type: The kind of text, such as "question", "review" or "document".
        domain: The texts' domain, such as "Wikipedia" or "medicine".
        objective: The purpose of the vectors, such as "retrieving supporting documents".

    Returns:
        The instruction.

    Raises:
        InputError: If a part is empty, holds a colon or a line break, or repeats a word of the format.

    Example:
        >>> from inbedder.prompting.templates import represent
        >>> represent("question", domain="Wikipedia", objective="retrieving supporting documents")
        'Represent the Wikipedia question for retrieving supporting documents:'
    """
    parts = {"text_type": text_type, "domain": domain, "objective": objective}
    fixed_words = {"text_type": ("represent", "the"), "domain": ("represent", "the"), "objective": ("for",)}
    for name, part in parts.items():
        if part is None and name != "text_type":
            continue
        if not isinstance(part, str) or not part.strip() or re.search(r"[:\n\r]", part):
            raise InputError(f"{name} must be a few words without a colon or a line break, not {part!r}.")
        if part.split()[0].lower() in fixed_words[name]:
            raise InputError(f"{name}={part!r}: leave out {part.split()[0]!r}, which the format adds.")
    description = " ".join(part.strip() for part in (domain, text_type) if part is not None)
    return f"Represent the {description}{f' for {objective.strip()}' if objective is not None else ''}:"


def check_unified_instruction(instruction: str) -> tuple[str, str | None]:
    """Check that an instruction is in INSTRUCTOR's unified format.

    Args:
        instruction: The instruction; surrounding space is allowed.

    Returns:
        Its domain and text type, and its objective or None.

    Raises:
        InputError: If it is not in the format.

    Example:
        >>> from inbedder.prompting.templates import check_unified_instruction
        >>> check_unified_instruction("Represent the Wikipedia question for retrieving supporting documents:")
        ('Wikipedia question', 'retrieving supporting documents')
    """
    match = _UNIFIED.fullmatch(instruction.strip())
    if match is None:
        raise InputError(
            f"{instruction!r} does not have the form 'Represent the (domain) text type for task objective:'. "
            "Build it with inbedder.prompting.templates.represent(text_type, domain=..., objective=...)."
        )
    return match["what"], match["objective"]


@dataclass(frozen=True)
class DefaultInstructions:
    """A model's instructions for calls without one: "" for no instruction, None for the one of ``encode``."""

    any: str = GENERIC_INSTRUCTION
    """For ``encode``."""
    query: str | None = None
    """For ``encode_query``."""
    document: str | None = None
    """For ``encode_document``."""

    @property
    def asks(self) -> bool:
        """Whether every instruction is a question: a blank one is then none, and not the prompt of an embedding model."""
        return self.any == GENERIC_INSTRUCTION


def choose_default_instructions(template: PromptTemplate, prompts: Mapping[str, str] | None) -> DefaultInstructions:
    """Choose a model's instructions for calls without one.

    Args:
        template: The prompt's template.
        prompts: An embedding model's own prompts, by "query", "document" and "" (any text); None for other models.

    Returns:
        For a model that answers, ``@generic``. For an embedding model its own prompts, if the template can render them; if it has
        none for queries and documents, the template's instructions for these.
    """
    if prompts is None:
        return DefaultInstructions()
    instructions = {
        name: instruction for name, prompt in prompts.items() if (instruction := template.extract_instruction(prompt)) is not None
    }
    if "query" in instructions or "document" in instructions:
        return DefaultInstructions(instructions.get("", ""), instructions.get("query", ""), instructions.get("document", ""))
    return DefaultInstructions(instructions.get("", ""), template.query, template.document)
