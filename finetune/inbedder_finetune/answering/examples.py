"""Tokenization of rows: the prompts of inference, with labels for the answers.

Prompt and answer are tokenized as one string, as in the InBedder authors' code; encoder-decoders tokenize them separately, since
they are two inputs. Every token with a character of the answer has a label. A text is cut as far as its own answer needs room.

An example has ``input_ids`` and ``labels``. A causal LM has one label per id (``IGNORE_INDEX`` for the prompt), a masked LM one
per mask; the labels of an encoder-decoder are the ids of the answer and the end token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
IGNORE_INDEX = -100
"""Label of tokens without a loss, as in torch and transformers."""


@dataclass(frozen=True)
class AnswerFormat:
    """Format of prompts and answers, from the settings of ``AnsweringRecipe``."""

    template: PromptTemplate
    """Prompt template."""
    max_length: int
    """Maximum prompt length in tokens, answer included."""
    mask_length: int | str
    """Number of masks of a masked LM, or "answer"."""
    max_answer_tokens: int
    """Maximum answer length in tokens."""
    answer_prefix: str
    """String between prompt and answer."""


def _truncate_answer(ids: list[int], words: Sequence[int | None], limit: int) -> list[int]:
    """Truncate ids to a limit, between words where possible."""
    end = limit
    while len(ids) > limit and end > 0 and words[end] == words[end - 1]:
        end -= 1
    return ids[: end or limit]


def _tokenize_pairs(
    make_prompt_tokenizer: Callable[[int], PromptTokenizer],
    rows: Sequence[Row],
    answer_format: AnswerFormat,
    count_reserved: Callable[[int], int],
) -> list[AnsweredPrompt]:
    """Tokenize prompts and answers, first all of them with the least room for an answer, then again those that do not fit.

    Args:
        make_prompt_tokenizer: Makes the prompt tokenizer that reserves a number of tokens after the prompt.
        rows: Training rows.
        answer_format: Lengths and answer_prefix.
        count_reserved: Number of tokens that an answer of a number of tokens needs after the prompt.

    Returns:
        One pair per row.
    """

    def tokenize(indices: Sequence[int], reserved: int) -> list[AnsweredPrompt]:
        answers = [answer_format.answer_prefix + rows[i].answer if rows[i].answer else "" for i in indices]
        texts, instructions = [rows[i].text for i in indices], [rows[i].instruction for i in indices]
        return make_prompt_tokenizer(reserved).with_answers(texts, instructions, answers)

    pairs = tokenize(range(len(rows)), count_reserved(0))
    too_long: dict[int, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        reserved = count_reserved(len(pair.answer_ids))
        if len(pair.prompt_ids) + reserved + len(pair.closing_ids) > answer_format.max_length:
            too_long[reserved].append(i)
    for reserved, indices in too_long.items():
        for i, pair in zip(indices, tokenize(indices, reserved), strict=True):
            pairs[i] = pair
    return pairs


def make_masked_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Make the examples of a masked LM: prompts with masks in place of the answer.

    A fixed number of masks truncates longer answers and fills up shorter ones with the end token. ``mask_length: answer`` gives
    as many masks as the answer has tokens, as in the paper.

    Args:
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template, lengths and mask_length.

    Returns:
        One example per row. Its labels are the targets of its masks, in order; "split" is the index where the instruction begins.
    """
    fixed = answer_format.mask_length if isinstance(answer_format.mask_length, int) else None
    masks = fixed or answer_format.max_answer_tokens
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id

    def make_prompt_tokenizer(reserved: int) -> PromptTokenizer:
        return PromptTokenizer(tokenizer, answer_format.template, answer_format.max_length, reserved)

    examples = []
    for pair in _tokenize_pairs(make_prompt_tokenizer, rows, answer_format, lambda count: fixed or max(1, min(count, masks))):
        answer = _truncate_answer(pair.answer_ids, pair.word_numbers, masks)
        targets = answer + [end] * (fixed - len(answer)) if fixed else answer or [end]
        ids = np.asarray([*pair.prompt_ids, *[tokenizer.mask_token_id] * len(targets), *pair.closing_ids], dtype=np.int32)
        labels = np.asarray(targets, dtype=np.int32)
        examples.append({"input_ids": ids, "labels": labels, "is_cut": pair.is_cut, "split": pair.instruction_start})
    return examples


def make_causal_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Make the examples of a causal LM: prompts followed by the answer and the end token.

    Args:
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template and lengths.

    Returns:
        One example per row. Its labels are its ids, with ``IGNORE_INDEX`` for the prompt; "split" is the index where the
        instruction begins.
    """

    def make_prompt_tokenizer(reserved: int) -> PromptTokenizer:
        return PromptTokenizer(tokenizer, answer_format.template, answer_format.max_length - reserved)

    examples = []
    limit = answer_format.max_answer_tokens
    for pair in _tokenize_pairs(make_prompt_tokenizer, rows, answer_format, lambda count: min(count, limit) + 1):
        answer = _truncate_answer(pair.answer_ids, pair.word_numbers, limit)
        answer_ids = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        labels = np.concatenate([np.full(len(pair.prompt_ids), IGNORE_INDEX, dtype=np.int32), answer_ids])
        ids = np.concatenate([pair.prompt_ids, answer_ids])
        examples.append({"input_ids": ids, "labels": labels, "is_cut": pair.is_cut, "split": pair.instruction_start})
    return examples


def make_seq2seq_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat) -> list[Example]:
    """Make the examples of an encoder-decoder: prompts for the encoder, answers and end tokens for the decoder.

    Args:
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template and lengths.

    Returns:
        One example per row. Its labels are the ids of the answer, tokenized separately as in the authors' code.
    """
    prompt_tokenizer = PromptTokenizer(tokenizer, answer_format.template, answer_format.max_length)
    prompts = prompt_tokenizer([row.text for row in rows], [row.instruction for row in rows])
    answers = [clean_text(row.answer) for row in rows]
    encoded = tokenizer(answers, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
    examples = []
    for number, (prompt, ids) in enumerate(zip(prompts, encoded["input_ids"], strict=True)):
        answer = _truncate_answer(ids, encoded.word_ids(number), answer_format.max_answer_tokens)
        labels = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        examples.append({"input_ids": prompt.ids, "labels": labels, "is_cut": prompt.is_cut})
    return examples


@dataclass(frozen=True)
class Collator:
    """Collator that pads examples and adds the targets of objectives."""

    pad_id: int
    """Id of the padding token."""
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    """Target vectors by name, shape (targets, d); an example has the index of its target under NAME_index."""
    side: str = "right"
    """Padding side: "left" or "right"."""
    mask_id: int | None = None
    """Id of the mask token; None for tokenizers without one."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Make a batch.

        Args:
            examples: Examples of one family.

        Returns:
            input_ids, attention_mask and labels; is_mask for tokenizers with a mask token; split (where instructions begin) for
            masked and causal LMs; NAME_index, shape (batch,), and NAME, float32, shape (batch, d), for each kind of targets.
        """
        batch = self.pad_examples(examples)
        if self.mask_id is not None:
            batch["is_mask"] = batch["input_ids"] == self.mask_id
        if "split" in examples[0]:
            batch["split"] = torch.tensor([int(example["split"]) for example in examples])
        for name, vectors in self.targets.items():
            batch[f"{name}_index"] = torch.tensor([int(example[f"{name}_index"]) for example in examples])
            batch[name] = vectors[batch[f"{name}_index"]].float()
        return batch

    def pad_examples(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Pad input_ids and labels, and make the attention mask."""
        ids, mask = pad([example["input_ids"] for example in examples], self.pad_id, self.side)
        labels, _ = pad([example["labels"] for example in examples], IGNORE_INDEX, self.side)
        return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}
