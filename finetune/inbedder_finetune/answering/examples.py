"""From rows to token ids: the prompts of inference, plus the answer that carries the loss.

Prompt and answer are tokenized in one piece, as the InBedder authors' code does, so that the ids are those of the joined string;
an encoder-decoder has them in two inputs, tokenized one by one. Tokens that hold a character of the answer carry the loss.

Every example holds ``input_ids`` and ``labels``. Labels of a causal LM stand beside all ids (``IGNORED`` at the prompt), those
of a masked LM are the targets of its masks in order, those of an encoder-decoder are the answer and its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inbedder.prompting.batching import pad
from inbedder.prompting.templates import PromptTemplate
from inbedder.prompting.tokenization import AnsweredPrompt, PromptTokenizer, clean_text
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Example = dict[str, Any]
IGNORED = -100


@dataclass(frozen=True)
class AnswerFormat:
    """How a row becomes a prompt and its answer; ``AnsweringRecipe`` describes the settings."""

    template: PromptTemplate
    """Prompt template."""
    max_length: int
    """Maximum prompt length in tokens, answer included."""
    mask_length: int | str
    """Masks of a masked LM, or "answer"."""
    max_answer_tokens: int
    """Maximum answer length in tokens."""
    answer_prefix: str
    """What stands between prompt and answer."""


def _cut(ids: list[int], words: Sequence[int | None], limit: int) -> list[int]:
    """So many tokens, without the part of a word that would be cut (unless it is the only word)."""
    end = limit
    while len(ids) > limit and end > 0 and words[end] == words[end - 1]:
        end -= 1
    return ids[: end or limit]


def _prompting(tokenizer: PreTrainedTokenizerBase, answer_format: AnswerFormat, room: int, masks: int = 0) -> PromptTokenizer:
    """Makes the very prompts of inference, cutting the text where they are too long, never the question."""
    return PromptTokenizer(tokenizer, answer_format.template, answer_format.max_length - room, masks)


def _answered(prompting: PromptTokenizer, rows: Sequence[Row], answer_format: AnswerFormat) -> list[AnsweredPrompt]:
    answers = [answer_format.answer_prefix + row.answer for row in rows]
    return prompting.with_answers([row.text for row in rows], [row.instruction for row in rows], answers)


def masked_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Prompts whose masks stand for the answer.

    With a fixed number of masks an answer is cut to it and a shorter one is filled with the end token; with
    ``mask_length: answer`` there are as many masks as the answer has tokens (the paper's way).

    Args:
        tokenizer: The model's.
        rows: What is learned.
        answer_format: Template, lengths and mask_length.

    Returns:
        One example per row; its labels are the targets of its masks, in order, and "split" says where the instruction begins.
    """
    fixed = answer_format.mask_length if isinstance(answer_format.mask_length, int) else None
    masks = fixed or answer_format.max_answer_tokens
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    examples = []
    for pair in _answered(_prompting(tokenizer, answer_format, 0, masks), rows, answer_format):
        answer = _cut(pair.answer, pair.words, masks)
        targets = answer + [end] * (fixed - len(answer)) if fixed else answer or [end]
        ids = np.asarray([*pair.before, *[tokenizer.mask_token_id] * len(targets), *pair.after], dtype=np.int32)
        labels = np.asarray(targets, dtype=np.int32)
        examples.append({"input_ids": ids, "labels": labels, "cut": pair.cut, "split": pair.instruction})
    return examples


def causal_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Prompts followed by the answer and the end token, which alone carry the loss.

    Args:
        tokenizer: The model's.
        rows: What is learned.
        answer_format: Template and lengths.

    Returns:
        One example per row; its labels are its ids, with ``IGNORED`` for the prompt.
    """
    examples = []
    for pair in _answered(_prompting(tokenizer, answer_format, answer_format.max_answer_tokens + 1), rows, answer_format):
        answer = _cut(pair.answer, pair.words, answer_format.max_answer_tokens)
        answer_ids = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        labels = np.concatenate([np.full(len(pair.before), IGNORED, dtype=np.int32), answer_ids])
        examples.append({"input_ids": np.concatenate([pair.before, answer_ids]), "labels": labels, "cut": pair.cut})
    return examples


def seq2seq_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Prompts for the encoder; the decoder learns the answer, tokenized alone as in the authors' code, and the end token.

    Args:
        tokenizer: The model's.
        rows: What is learned.
        answer_format: Template and lengths.

    Returns:
        One example per row; its labels are the answer's ids.
    """
    prompts = _prompting(tokenizer, answer_format, 0)([row.text for row in rows], [row.instruction for row in rows])
    answers = [clean_text(row.answer) for row in rows]
    encoded = tokenizer(answers, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
    examples = []
    for number, (prompt, ids) in enumerate(zip(prompts, encoded["input_ids"], strict=True)):
        answer = _cut(ids, encoded.word_ids(number), answer_format.max_answer_tokens)
        labels = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        examples.append({"input_ids": prompt.ids, "labels": labels, "cut": prompt.cut})
    return examples


@dataclass(frozen=True)
class Collator:
    """Pads examples and adds the targets of objectives."""

    pad_id: int
    """Id of padding in input_ids."""
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    """Target vectors by name, each of shape (targets, d); an example has its target's index under NAME_index."""
    side: str = "right"
    """Where padding stands."""
    mask_id: int | None = None
    """Id of the mask token, of a tokenizer that has one."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Make a batch.

        Args:
            examples: Examples of one kind.

        Returns:
            input_ids, attention_mask, labels; where there is a mask token also is_mask; of masked LMs split (where instructions
            begin); of each targets NAME_index (batch,) and NAME (batch, d), float32.
        """
        batch = self.padded(examples)
        if self.mask_id is not None:
            batch["is_mask"] = batch["input_ids"] == self.mask_id
        if "split" in examples[0]:
            batch["split"] = torch.tensor([int(example["split"]) for example in examples])
        for name, vectors in self.targets.items():
            batch[f"{name}_index"] = torch.tensor([int(example[f"{name}_index"]) for example in examples])
            batch[name] = vectors[batch[f"{name}_index"]].float()
        return batch

    def padded(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Pad input_ids and labels, and make the attention_mask."""
        ids, mask = pad([example["input_ids"] for example in examples], self.pad_id, self.side)
        labels, _ = pad([example["labels"] for example in examples], IGNORED, self.side)
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}
