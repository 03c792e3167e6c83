"""Chat templates: what a tokenizer's own Jinja template writes around a user message.

The template is rendered with a placeholder as the message, and split there. The message is then the prompt's pattern, so that
spans, cutting and shared prefixes work as for any other template. Templates that print today's date get a fixed one: otherwise
the vectors of one text would change from day to day.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from inbedder.errors import TemplateError, format_value

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from inbedder.prompting.templates import PromptTemplate

_PLACEHOLDER = "inbedder-message"
_SAMPLES = (f"{_PLACEHOLDER}\n\n<b> {{c}}", f"\n {_PLACEHOLDER} \n")
"""Messages that a template must leave as they are, but for blanks at their ends."""
_DATE = {"%d": "26", "%b": "Jul", "%B": "July", "%m": "07", "%Y": "2024", "%y": "24", "%A": "Friday", "%a": "Fri"}
"""The fixed date: Llama 3's default where it knows no date."""
_SWITCHES = {"enable_thinking": False, "thinking": False}
"""The variables with which templates turn thinking off."""


def resolve_chat_template(template: PromptTemplate, tokenizer: PreTrainedTokenizerBase) -> PromptTemplate:
    """Fill in what a tokenizer's chat template writes around the user message.

    Args:
        template: Any template; one without a system message is no chat template, and returned unchanged.
        tokenizer: The model's tokenizer.

    Returns:
        The template with ``opening``, ``closing`` and ``strips``. A system message that the tokenizer's template refuses is left
        out.

    Raises:
        TemplateError: If the tokenizer has no chat template, or one that changes the user message.
    """
    if template.system is None:
        return template
    if not tokenizer.chat_template:
        raise TemplateError(
            f"The tokenizer of {tokenizer.name_or_path} has no chat template, which template={template.name!r} needs. Choose "
            "another template, or load the model's chat or instruct version."
        )
    system = template.system
    try:
        rendered = _render(tokenizer, system, _PLACEHOLDER)
    except TemplateError:
        if not system:
            raise
        system = ""
        rendered = _render(tokenizer, system, _PLACEHOLDER)
    opening, *closings = rendered.split(_PLACEHOLDER)
    for strips in (False, True):
        wrapped = [opening + (sample.strip() if strips else sample) + "".join(closings) for sample in _SAMPLES]
        if len(closings) == 1 and wrapped == [_render(tokenizer, system, sample) for sample in _SAMPLES]:
            return replace(template, opening=opening, closing=closings[0], strips=strips)
    raise TemplateError(
        f"The chat template of {tokenizer.name_or_path} does not hold the user message once and unchanged. Write the prompt as a "
        "pattern with {input} and {instruction}."
    )


def _render(tokenizer: PreTrainedTokenizerBase, system: str, message: str) -> str:
    """Render a chat up to the answer, on the fixed date."""
    messages = [{"role": "user", "content": message}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    date = "".join(f".replace({code!r}, {value!r})" for code, value in _DATE.items())
    fixed_date = f"{{% macro strftime_now(format) %}}{{{{ format{date} }}}}{{% endmacro %}}"
    try:
        source = fixed_date + tokenizer.get_chat_template()
        rendered = tokenizer.apply_chat_template(
            messages, chat_template=source, tokenize=False, add_generation_prompt=True, **_SWITCHES
        )
    except Exception as error:  # a template is a program, and may fail in any way
        raise TemplateError(f"The chat template of {tokenizer.name_or_path} fails ({format_value(error)}).") from error
    return str(rendered)


def list_markers(template: PromptTemplate, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """List the tokens that a text must not hold in a chat: special ones, and those that the chat template writes."""
    written = template.opening + template.closing
    return [
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or (token.content in written and any(map(str.isalnum, token.content)))
    ]


def compile_first_characters(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern for the first character of every token, after which a space breaks it; None without tokens."""
    endings = defaultdict(list)
    for token in tokens:
        if len(token) > 1:
            endings[token[0]].append(re.escape(token[1:]))
    patterns = [f"{re.escape(first)}(?={'|'.join(parts)})" for first, parts in endings.items()]
    return re.compile("|".join(patterns)) if patterns else None
