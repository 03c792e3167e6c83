"""Tokenization of prompts: token ids, and the exact token spans of text and instruction.

The ids equal those of tokenizing the rendered template in one piece. If the prompt exceeds ``max_length``, the text is cut at its
end (or its start) and rendered again. Template, instruction and response marker survive, unless the rendered prompt is to be cut,
as transformers cuts a string: that is what the InBedder authors' code does at the start.

A prompt with its answer is also tokenized in one piece, as the InBedder authors train: after a prompt a tokenizer may split a
word differently. Special tokens written in a text or an instruction (``</s>``, ``[MASK]``) become plain characters. A Unigram
vocabulary cannot do that, and a chat template writes special tokens itself: there a space after the first character breaks
them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.errors import InputError, ModelError, TemplateError
from inbedder.prompting.chat_templates import compile_first_characters, list_markers, resolve_chat_template
from inbedder.prompting.templates import PromptTemplate, RenderedPrompt
from inbedder.prompting.tokenizer_calls import find_unknown_forms, tokenize

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

CHARACTERS_PER_TOKEN = 32
"""First guess for very long texts, doubled until a prompt of ``max_length`` tokens is full."""
CHUNK_TEXTS = 1000
"""Texts tokenized in one call."""
PROMPT_SIDES = ("prompt-right", "prompt-left")
"""Truncation sides of the whole prompt."""
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE_REPLACEMENTS = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


@dataclass(frozen=True)
class PromptTokens:
    """One tokenized prompt."""

    ids: NDArray[np.int32]
    """Token ids, shape (length,), mask tokens included."""
    text: tuple[int, int]
    """Token span (start, end) of the text."""
    instruction: tuple[int, int]
    """Token span (start, end) of the instruction."""
    response: int
    """Index at which the answer begins: the first mask, or the end of a causal prompt."""
    is_cut: bool
    """Whether the text was cut to fit."""
    kept_characters: tuple[int, int]
    """Character span (start, end) of the text that remains."""


@dataclass(frozen=True)
class AnsweredPrompt:
    """One prompt and its answer, tokenized in one piece."""

    prompt_ids: NDArray[np.int32]
    """Ids of the tokens before the answer, shape (length,)."""
    answer_ids: list[int]
    """Ids of the tokens that hold at least one character of the answer."""
    word_numbers: list[int | None]
    """For each token of the answer, the number of its word."""
    closing_ids: list[int]
    """Ids of the special tokens that close the input."""
    instruction_start: int
    """Index at which the instruction begins."""
    is_cut: bool
    """Whether the text was cut to fit."""


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone ones by U+FFFD, because tokenizers reject them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        joined = _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        return joined.translate(_SURROGATE_REPLACEMENTS)
    return text


class PromptTokenizer:
    """A tokenizer of prompts, for one template and one model."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: PromptTemplate,
        max_length: int = 512,
        mask_length: int = 0,
        truncation_side: str = "right",
    ) -> None:
        """Bind a tokenizer to a template.

        Args:
            tokenizer: A fast tokenizer, because offsets are needed.
            template: The prompt's template.
            max_length: Maximum prompt length in tokens, special and mask tokens included.
            mask_length: Number of mask tokens after the prompt (masked LMs; 0 for others).
            truncation_side: Where a long text is cut: "right", at its end, or "left", at its start. "prompt-right" and
                "prompt-left" cut the whole prompt, as transformers does.

        Raises:
            InputError: If the side is unknown.
            ModelError: If the tokenizer is slow, or lacks the mask token that a masked LM needs.
            TemplateError: If the template's fixed text holds a special token of the tokenizer, or the tokenizer lacks the chat
                template that it needs.
        """
        if truncation_side not in ("right", "left", *PROMPT_SIDES):
            raise InputError(
                "truncation_side must be 'right' (cut texts at their end) or 'left', or 'prompt-right' or 'prompt-left' (cut the "
                f"template too), not {truncation_side!r}."
            )
        if not tokenizer.is_fast:
            raise ModelError(f"{tokenizer.name_or_path} has no fast tokenizer (tokenizer.json). Convert it with tokenizers.")
        if mask_length and tokenizer.mask_token_id is None:
            raise ModelError(f"The tokenizer of {tokenizer.name_or_path} has no mask token, which a masked LM needs.")
        template = resolve_chat_template(template, tokenizer)
        is_chat = template.system is not None
        specials = list_markers(template, tokenizer) if is_chat else tokenizer.all_special_tokens
        own_parts = replace(template, opening=template.system or "", closing="").fixed_parts
        for special in specials:
            if any(special in part for part in own_parts):
                raise TemplateError(
                    f"Template {template.name!r} holds the special token {special!r}. Remove it: a template is plain text, "
                    "and the tokenizer adds its own special tokens."
                )
        self.tokenizer = tokenizer
        self.template = template
        self.max_length = max_length
        self.mask_length = mask_length
        self.truncation_side = truncation_side
        self._options: dict[str, Any] = {"split_special_tokens": False, "add_special_tokens": False} if is_chat else {}
        self._closing = count_special_edges(self._encode(["a"])[0])[1]
        self._unknown_forms = find_unknown_forms(tokenizer)
        leaking = specials if is_chat else [one for one in specials if one != tokenizer.unk_token and self._is_leaking(one)]
        self._leaking_starts = compile_first_characters(leaking)
        splits_at_blanks = type(tokenizer.backend_tokenizer.pre_tokenizer).__name__ == "BertPreTokenizer"
        self._is_separable = splits_at_blanks and template.text_first and template.fixed_parts[1][-1:].isspace()

    def __call__(self, texts: Sequence[str], instructions: Sequence[str]) -> list[PromptTokens]:
        """Tokenize prompts.

        Args:
            texts: n texts.
            instructions: n instructions, one per text.

        Returns:
            n tokenized prompts of at most ``max_length`` tokens.

        Raises:
            InputError: If an instruction leaves no room for any text, or special tokens leave none for the prompt.
        """
        prompts: list[PromptTokens] = []
        for start in range(0, len(texts), CHUNK_TEXTS):
            chunk = [self.clean(text) for text in texts[start : start + CHUNK_TEXTS]]
            cleaned = [self.clean(instruction) for instruction in instructions[start : start + CHUNK_TEXTS]]
            is_product = self._is_separable and len(set(chunk)) + len(set(cleaned)) < len(chunk)
            prompts += self._tokenize_product(chunk, cleaned) if is_product else self._tokenize_chunk(chunk, cleaned)
        return prompts

    def with_answers(self, texts: Sequence[str], instructions: Sequence[str], answers: Sequence[str]) -> list[AnsweredPrompt]:
        """Tokenize prompts with their answers. Texts are cut as in prompts without answers; whole prompts cannot be.

        Args:
            texts: n texts.
            instructions: n instructions.
            answers: n answers, each with its leading space, if any.

        Returns:
            n tokenized pairs. Their prompt, answer and closing ids are those of tokenizing prompt + answer.

        Raises:
            InputError: If an instruction leaves no room for any text.
        """
        assert self.truncation_side not in PROMPT_SIDES
        prompts = self(texts, instructions)
        rendered = [
            self.template.render(self.clean(text)[slice(*prompt.kept_characters)], self.clean(instruction)).string
            for prompt, text, instruction in zip(prompts, texts, instructions, strict=True)
        ]
        full_strings = [string + self.clean(answer) for string, answer in zip(rendered, answers, strict=True)]
        pairs = []
        for prompt, string, encoding in zip(prompts, rendered, self._encode(full_strings), strict=True):
            ids, offsets, end = encoding.ids, encoding.offsets, len(encoding.ids) - self._closing
            first = end
            while first > 0 and offsets[first - 1][1] > len(string):
                first -= 1
            prompt_ids = np.asarray(ids[:first], dtype=np.int32)
            start = prompt.instruction[0]
            pairs.append(
                AnsweredPrompt(prompt_ids, ids[first:end], encoding.word_ids[first:end], ids[end:], start, prompt.is_cut)
            )
        return pairs

    def find_token_ids(self, words: Sequence[str]) -> list[int]:
        """Find the ids of words' tokens, at the start of a text and within it, sorted."""
        ids: set[int] = set()
        for word in words:
            for form in (word, " " + word):
                ids.update(self.tokenizer(form, add_special_tokens=False)["input_ids"])
        return sorted(ids)

    def _is_leaking(self, special: str) -> bool:
        """Return whether a special token written in a text becomes one, as it does in a Unigram vocabulary."""
        plain_ids, special_ids = (encoding.ids for encoding in self._encode(["a b", f"a {special} b"]))
        special_id = self.tokenizer.convert_tokens_to_ids(special)
        return bool(special_ids.count(special_id) > plain_ids.count(special_id))

    def clean(self, text: str) -> str:
        """Replace what the tokenizer cannot or must not read: surrogates, special tokens, and forms that its vocabulary lacks."""
        text = clean_text(text)
        if self._unknown_forms and not text.isascii():
            text = text.translate(self._unknown_forms)
        return text if self._leaking_starts is None else self._leaking_starts.sub(r"\g<0> ", text)

    def _tokenize_product(self, texts: list[str], instructions: list[str]) -> list[PromptTokens]:
        """Tokenize each distinct text and instruction once, and join what comes before the instruction with what begins there.

        Blanks separate the two, at which the tokenizer splits before all else. Prompts that do not fit or have an empty part are
        tokenized whole.
        """
        distinct_texts, distinct_instructions = list(dict.fromkeys(texts)), list(dict.fromkeys(instructions))
        with_text = self._tokenize_chunk(distinct_texts, [instructions[0]] * len(distinct_texts))
        with_instruction = self._tokenize_chunk(["a"] * len(distinct_instructions), distinct_instructions)
        first_parts = dict(zip(distinct_texts, with_text, strict=True))
        second_parts = dict(zip(distinct_instructions, with_instruction, strict=True))
        prompts: dict[int, PromptTokens] = {}
        for i, (text, instruction) in enumerate(zip(texts, instructions, strict=True)):
            first, second = first_parts[text], second_parts[instruction]
            end, start = first.instruction[0], second.instruction[0]
            fits = end + len(second.ids) - start <= self.max_length and not (first.is_cut or second.is_cut)
            if fits and text.strip() and end < first.instruction[1] and start < second.instruction[1]:
                prompts[i] = replace(
                    second,
                    ids=np.concatenate([first.ids[:end], second.ids[start:]]),
                    text=first.text,
                    instruction=(end, second.instruction[1] - start + end),
                    response=second.response - start + end,
                    kept_characters=first.kept_characters,
                )
        remaining = [i for i in range(len(texts)) if i not in prompts]
        whole_prompts = self._tokenize_chunk([texts[i] for i in remaining], [instructions[i] for i in remaining])
        prompts |= dict(zip(remaining, whole_prompts, strict=True))
        return [prompts[i] for i in range(len(texts))]

    def _tokenize_chunk(self, texts: list[str], instructions: list[str]) -> list[PromptTokens]:
        cuts_prompt, character_limit = self.truncation_side in PROMPT_SIDES, self.max_length * CHARACTERS_PER_TOKEN
        short_texts = [(i, text) for i, text in enumerate(texts) if cuts_prompt or len(text) <= character_limit]
        rendered_prompts = [self.template.render(text, instructions[i]) for i, text in short_texts]
        encodings = self._encode([rendered.string for rendered in rendered_prompts])
        prompts: dict[int, PromptTokens] = {}
        for (i, text), rendered, encoding in zip(short_texts, rendered_prompts, encodings, strict=True):
            if len(encoding.ids) + self.mask_length <= self.max_length:
                prompts[i] = self._finish(encoding, rendered, (0, len(text)), is_cut=False)
            elif cuts_prompt:
                prompts[i] = self._cut_prompt(encoding, rendered, len(text))
        return [prompts.get(i) or self._fit(text, instructions[i]) for i, text in enumerate(texts)]

    def _encode(self, strings: list[str]) -> list[Encoding]:
        if not strings:
            return []
        return tokenize(self.tokenizer, strings, **self._options)

    def _fit(self, text: str, instruction: str) -> PromptTokens:
        """Cut the text until its prompt fits, tokenizing only as much of a very long text as needed."""
        kept_count, probe_size = len(text), self.max_length * CHARACTERS_PER_TOKEN
        while probe_size < len(text):
            encoding = self._encode([self.template.render(self._take_piece(text, probe_size), instruction).string])[0]
            if len(encoding.ids) + self.mask_length > self.max_length:
                kept_count = probe_size
                break
            probe_size *= 2
        while True:
            piece = self._take_piece(text, kept_count)
            rendered = self.template.render(piece, instruction)
            encoding = self._encode([rendered.string])[0]
            excess = len(encoding.ids) + self.mask_length - self.max_length
            if excess <= 0:
                start = len(text) - kept_count if self.truncation_side == "left" else 0
                return self._finish(encoding, rendered, (start, start + kept_count), is_cut=kept_count < len(text))
            if kept_count == 0:
                raise InputError(
                    f"The instruction and the template take {len(encoding.ids) + self.mask_length} tokens, more than "
                    f"max_length={self.max_length}. Shorten the instruction or raise max_length, if the model takes more."
                )
            ((start, end),) = _find_token_spans(encoding, rendered.text)
            if self.truncation_side == "left":
                remaining_count = rendered.text[1] - encoding.offsets[min(end, start + excess) - 1][1]
            else:
                remaining_count = encoding.offsets[max(start, end - excess)][0] - rendered.text[0]
                if self.template.strips and self.template.text_first:
                    remaining_count += len(piece) - len(piece.lstrip())
            is_blank = rendered.text[0] == rendered.text[1]
            kept_count = 0 if is_blank else max(0, min(remaining_count, kept_count - 1))

    def _cut_prompt(self, encoding: Encoding, rendered: RenderedPrompt, size: int) -> PromptTokens:
        """Cut the rendered prompt of a text of ``size`` characters between its special tokens, as transformers does."""
        prompt = self._finish(encoding, rendered, (0, size), is_cut=True)
        excess, (opening, closing) = len(prompt.ids) - self.max_length, count_special_edges(encoding)
        end = len(encoding.ids) - closing
        if opening + excess >= end:
            raise InputError(f"max_length={self.max_length} leaves no room for a prompt beside the special tokens. Raise it.")
        if self.truncation_side == "prompt-left":
            cut_start, kept_span = opening, (encoding.offsets[opening + excess][0], len(rendered.string))
        else:
            cut_start, kept_span = end - excess, (0, encoding.offsets[end - excess - 1][1])
        start, stop = (min(max(index - rendered.text[0], 0), size) for index in kept_span)

        def shift(index: int) -> int:
            return index - min(max(index - cut_start, 0), excess)

        return PromptTokens(
            ids=np.delete(prompt.ids, slice(cut_start, cut_start + excess)),
            text=(shift(prompt.text[0]), shift(prompt.text[1])),
            instruction=(shift(prompt.instruction[0]), shift(prompt.instruction[1])),
            response=shift(prompt.response),
            is_cut=True,
            kept_characters=(start, max(start, stop)),
        )

    def _take_piece(self, text: str, count: int) -> str:
        """Take ``count`` characters of a text from the side that is not cut."""
        return text[len(text) - count :] if self.truncation_side == "left" else text[:count]

    def _finish(
        self, encoding: Encoding, rendered: RenderedPrompt, kept_characters: tuple[int, int], *, is_cut: bool
    ) -> PromptTokens:
        ids = encoding.ids
        end = len(ids)
        if self.mask_length:
            end -= self._closing
            ids = ids[:end] + [self.tokenizer.mask_token_id] * self.mask_length + ids[end:]
        text_span, instruction_span = _find_token_spans(encoding, rendered.text, rendered.instruction)
        return PromptTokens(
            ids=np.asarray(ids, dtype=np.int32),
            text=text_span,
            instruction=instruction_span,
            response=end,
            is_cut=is_cut,
            kept_characters=kept_characters,
        )


def count_special_edges(encoding: Encoding) -> tuple[int, int]:
    """Count the special tokens before and after a prompt that holds at least one plain token."""
    mask = list(encoding.special_tokens_mask)
    return mask.index(0), mask[::-1].index(0)


def _find_token_spans(encoding: Encoding, *spans: tuple[int, int]) -> list[tuple[int, int]]:
    """Find for each span of characters the span (start, end) of its tokens; it is empty if no token holds a character."""
    mask = encoding.special_tokens_mask
    first = mask.index(0) if 0 in mask else 0
    offsets = [offset for offset, special in zip(encoding.offsets, mask, strict=True) if not special]
    begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
    token_spans = []
    for start, end in spans:
        start_index = bisect_right(ends, start)
        end_index = max(start_index, bisect_left(begins, end)) if start < end else start_index
        token_spans.append((first + start_index, first + end_index))
    return token_spans


def count_common_ids(rows: Sequence[NDArray[np.int32]]) -> int:
    """Count the leading ids that all rows share, leaving each row at least one id of its own."""
    length = min(len(row) for row in rows) - 1
    first = rows[0][:length]
    for row in rows[1:]:
        differing = np.flatnonzero(row[:length] != first[: len(row[:length])])
        length = int(differing[0]) if len(differing) else length
        first = first[:length]
    return length
