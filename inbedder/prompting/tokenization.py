"""From (text, instruction) to token ids whose parts are known exactly.

The ids are those of tokenizing the rendered template in one piece. Where that is longer than ``max_length``, the text
is cut at its end (or its start), character by character of its last tokens, and rendered again, so template, instruction and
response marker always survive and the ids still are those of a rendered template. A prompt with its answer is tokenized in one
piece too, as the InBedder authors train: behind a prompt a tokenizer may spell a word in another way than alone. Special tokens
written in a text or an instruction (``</s>``, ``[MASK]``) are tokenized as plain characters; where a vocabulary makes that
impossible (Unigram), a space behind their first character breaks them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from inbedder.errors import InputError, ModelError, TemplateError
from inbedder.prompting.templates import PromptTemplate

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase

CHARACTERS_PER_TOKEN = 32  # first guess for very long texts, doubled until enough tokens come out
CHUNK = 1000
SIDES = {"right": "end", "left": "start"}
"""Where a text is cut, as transformers calls it and as messages do."""


@dataclass(frozen=True)
class PromptTokens:
    """One tokenized prompt."""

    ids: NDArray[np.int32]
    """Token ids, shape (length,), mask tokens included."""
    text: tuple[int, int]
    """Token span (start, end) that holds a character of the text."""
    instruction: tuple[int, int]
    """Token span (start, end) that holds a character of the instruction."""
    response: int
    """Index at which the answer begins: the first mask, or the end of a causal prompt."""
    cut: bool
    """True when the text was cut to fit."""
    kept: tuple[int, int]
    """Character span (start, end) of the text that was not cut off."""


@dataclass(frozen=True)
class AnsweredPrompt:
    """One prompt and its answer, tokenized in one piece."""

    before: NDArray[np.int32]
    """Ids of the tokens that hold nothing of the answer, shape (length,)."""
    answer: list[int]
    """Ids of the tokens that hold at least one character of the answer."""
    words: list[int | None]
    """Number of the word that each token of the answer belongs to."""
    after: list[int]
    """Ids of the special tokens that close the input."""
    instruction: int
    """Index at which the instruction begins."""
    cut: bool
    """True when the text was cut to fit."""


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD, which tokenizers could not take.

    Args:
        text: Any string.

    Returns:
        A string that encodes as UTF-8; the same object when nothing had to change.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class PromptTokenizer:
    """Tokenizes prompts of one template for one model."""

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
            tokenizer: A fast tokenizer (offsets are needed).
            template: How text and instruction are put together.
            max_length: Longest prompt in tokens, special and mask tokens included.
            mask_length: How many mask tokens follow the prompt (masked LMs; 0 for others).
            truncation_side: Where a text that is too long is cut: "right", at its end, or "left", at its start.

        Raises:
            InputError: When there is no such side.
            ModelError: When the tokenizer is a slow one, or has no mask token where one is needed.
            TemplateError: When the template's fixed text holds a special token of the tokenizer.
        """
        if truncation_side not in SIDES:
            raise InputError(f"truncation_side must be 'right' (cut texts at their end) or 'left', not {truncation_side!r}.")
        if not tokenizer.is_fast:
            raise ModelError(f"{tokenizer.name_or_path}: no fast tokenizer (tokenizer.json); convert it with tokenizers.")
        if mask_length and tokenizer.mask_token_id is None:
            raise ModelError(f"{tokenizer.name_or_path}: the tokenizer has no mask token, so it cannot serve a masked LM.")
        for special in tokenizer.all_special_tokens:
            if any(special in part for part in template.fixed_parts):
                raise TemplateError(
                    f"Template {template.name!r} holds the special token {special!r}. Leave it out: "
                    "the tokenizer adds its own special tokens, a template is plain text."
                )
        self.tokenizer = tokenizer
        self.template = template
        self.max_length = max_length
        self.mask_length = mask_length
        self.truncation_side = truncation_side
        self._closing = special_edges(self._encode(["a"])[0])[1]
        self._leaking = [token for token in tokenizer.all_special_tokens if token != tokenizer.unk_token and self._leaks(token)]

    def __call__(self, texts: Sequence[str], instructions: Sequence[str]) -> list[PromptTokens]:
        """Tokenize prompts.

        Args:
            texts: n texts.
            instructions: n instructions, one per text.

        Returns:
            n tokenized prompts, each at most ``max_length`` long.

        Raises:
            InputError: When an instruction alone leaves no room for any text.
        """
        prompts: list[PromptTokens] = []
        for start in range(0, len(texts), CHUNK):
            chunk = [self._clean(text) for text in texts[start : start + CHUNK]]
            cleaned = [self._clean(instruction) for instruction in instructions[start : start + CHUNK]]
            prompts += self._tokenize_chunk(chunk, cleaned)
        return prompts

    def with_answers(self, texts: Sequence[str], instructions: Sequence[str], answers: Sequence[str]) -> list[AnsweredPrompt]:
        """Tokenize prompts with what follows them; texts are cut as if the prompts stood alone.

        Args:
            texts: n texts.
            instructions: n instructions.
            answers: n answers, with the space in front that should set them apart, if any.

        Returns:
            n tokenized pairs. The ids of before, answer and after are those of tokenizing prompt + answer.

        Raises:
            InputError: When an instruction alone leaves no room for any text.
        """
        prompts = self(texts, instructions)
        rendered = [
            self.template.render(self._clean(text)[slice(*prompt.kept)], self._clean(instruction)).string
            for prompt, text, instruction in zip(prompts, texts, instructions, strict=True)
        ]
        whole = [string + self._clean(answer) for string, answer in zip(rendered, answers, strict=True)]
        pairs = []
        for prompt, string, encoding in zip(prompts, rendered, self._encode(whole), strict=True):
            ids, offsets, end = encoding.ids, encoding.offsets, len(encoding.ids) - self._closing
            first = end
            while first > 0 and offsets[first - 1][1] > len(string):
                first -= 1
            before = np.asarray(ids[:first], dtype=np.int32)
            start = prompt.instruction[0]
            pairs.append(AnsweredPrompt(before, ids[first:end], encoding.word_ids[first:end], ids[end:], start, prompt.cut))
        return pairs

    def ids_of(self, words: Sequence[str]) -> list[int]:
        """Collect the sorted ids of words' tokens at the start of a text and within it."""
        ids: set[int] = set()
        for word in words:
            for form in (word, " " + word):
                ids.update(self.tokenizer(form, add_special_tokens=False)["input_ids"])
        return sorted(ids)

    def _leaks(self, special: str) -> bool:
        """Whether a special token written in a text becomes one: in Unigram vocabularies it is a piece like any other."""
        plain, written = (encoding.ids for encoding in self._encode(["a b", f"a {special} b"]))
        number = self.tokenizer.convert_tokens_to_ids(special)
        return bool(written.count(number) > plain.count(number))

    def _clean(self, text: str) -> str:
        text = clean_text(text)
        for special in self._leaking:
            text = text.replace(special, f"{special[0]} {special[1:]}")
        return text

    def _tokenize_chunk(self, texts: list[str], instructions: list[str]) -> list[PromptTokens]:
        short = self.max_length * CHARACTERS_PER_TOKEN
        whole = [(i, text) for i, text in enumerate(texts) if len(text) <= short]
        encodings = self._encode([self.template.render(text, instructions[i]).string for i, text in whole])
        prompts: dict[int, PromptTokens] = {}
        for (i, text), encoding in zip(whole, encodings, strict=True):
            if len(encoding.ids) + self.mask_length <= self.max_length:
                prompts[i] = self._finish(encoding, text, instructions[i], cut=False)
        return [prompts.get(i) or self._fit(text, instructions[i]) for i, text in enumerate(texts)]

    def _encode(self, strings: list[str]) -> list[Encoding]:
        if not strings:
            return []
        encoded = self.tokenizer(strings, split_special_tokens=True, truncation=False, verbose=False)
        encodings = encoded.encodings
        assert encodings is not None  # the tokenizer is a fast one
        return list(encodings)

    def _fit(self, text: str, instruction: str) -> PromptTokens:
        """Cut the text until its prompt fits; look only as far into a very long text as is needed."""
        kept, size = len(text), self.max_length * CHARACTERS_PER_TOKEN
        while size < len(text):
            encoding = self._encode([self.template.render(self._piece(text, size), instruction).string])[0]
            if len(encoding.ids) + self.mask_length > self.max_length:
                kept = size
                break
            size *= 2
        while True:
            piece = self._piece(text, kept)
            rendered = self.template.render(piece, instruction)
            encoding = self._encode([rendered.string])[0]
            excess = len(encoding.ids) + self.mask_length - self.max_length
            if excess <= 0:
                start = len(text) - kept if self.truncation_side == "left" else 0
                return self._finish(encoding, piece, instruction, start, cut=kept < len(text))
            if kept == 0:
                raise InputError(
                    f"The instruction and the template take {len(encoding.ids) + self.mask_length} tokens, more than "
                    f"max_length={self.max_length}. Shorten the instruction or raise max_length, where the model takes more."
                )
            ((start, end),) = _token_spans(encoding, rendered.text)
            if self.truncation_side == "left":
                left = rendered.text[1] - encoding.offsets[min(end, start + excess) - 1][1]
            else:
                left = encoding.offsets[max(start, end - excess)][0] - rendered.text[0]
            kept = max(0, min(left, kept - 1))

    def _piece(self, text: str, size: int) -> str:
        """So many characters of a text, of the side that is not cut."""
        return text[len(text) - size :] if self.truncation_side == "left" else text[:size]

    def _finish(self, encoding: Encoding, text: str, instruction: str, start: int = 0, *, cut: bool) -> PromptTokens:
        ids = encoding.ids
        end = len(ids)
        if self.mask_length:
            end -= self._closing
            ids = ids[:end] + [self.tokenizer.mask_token_id] * self.mask_length + ids[end:]
        rendered = self.template.render(text, instruction)
        of_text, of_instruction = _token_spans(encoding, rendered.text, rendered.instruction)
        return PromptTokens(
            ids=np.asarray(ids, dtype=np.int32),
            text=of_text,
            instruction=of_instruction,
            response=end,
            cut=cut,
            kept=(start, start + len(text)),
        )


def special_edges(encoding: Encoding) -> tuple[int, int]:
    """How many special tokens the tokenizer puts before and behind a prompt, read off one that holds a plain token."""
    mask = list(encoding.special_tokens_mask)
    return mask.index(0), mask[::-1].index(0)


def _token_spans(encoding: Encoding, *spans: tuple[int, int]) -> list[tuple[int, int]]:
    """For each span of characters the tokens that hold one of them, (start, end); none where it stands if no token does."""
    mask = encoding.special_tokens_mask
    first = mask.index(0) if 0 in mask else 0
    offsets = [place for place, special in zip(encoding.offsets, mask, strict=True) if not special]
    begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
    found = []
    for start, end in spans:
        left = bisect_right(ends, start)
        right = max(left, bisect_left(begins, end)) if start < end else left
        found.append((first + left, first + right))
    return found


def common_length(rows: Sequence[NDArray[np.int32]]) -> int:
    """How many leading ids are the same in all rows; each row keeps one of its own."""
    length = min(len(row) for row in rows) - 1
    first = rows[0][:length]
    for row in rows[1:]:
        differing = np.flatnonzero(row[:length] != first[: len(row[:length])])
        length = int(differing[0]) if len(differing) else length
        first = first[:length]
    return length
