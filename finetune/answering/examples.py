"""From rows to token ids: the prompts of inference, plus the answer that carries the loss.

Every example holds ``input_ids`` and ``labels``. Labels of a causal LM stand beside all ids (``IGNORED`` at the prompt), those
of a masked LM are the targets of its masks in order, those of an encoder-decoder are the answer and its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from finetune.answering.recipe import AnsweringRecipe
from finetune.answering.rows import Row
from inbedder.prompting import get_template
from inbedder.tokenization import PromptTokenizer, clean_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Example = dict[str, Any]
IGNORED = -100


def _answer_ids(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], limit: int, prefix: str = "") -> list[list[int]]:
    answers = [prefix + clean_text(row.answer) for row in rows]
    encoded = tokenizer(answers, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
    return [_cut(ids, encoded.word_ids(row), limit) for row, ids in enumerate(encoded["input_ids"])]


def _cut(ids: list[int], words: Sequence[int | None], limit: int) -> list[int]:
    """So many tokens, without the part of a word that would be cut (unless it is the only word)."""
    end = limit
    while len(ids) > limit and end > 0 and words[end] == words[end - 1]:
        end -= 1
    return ids[: end or limit]


def _prompts(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: AnsweringRecipe, room: int, masks: int = 0) -> Any:
    """The very prompts of inference, which cut the text where they are too long, never the question."""
    prompting = PromptTokenizer(tokenizer, get_template(recipe.template), recipe.max_length - room, masks)
    return prompting([row.text for row in rows], [row.instruction for row in rows])


def masked_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: AnsweringRecipe) -> list[Example]:
    """Prompts whose masks stand for the answer.

    With a fixed number of masks an answer is cut to it and a shorter one is filled with the end token; with
    ``mask_length: answer`` there are as many masks as the answer has tokens (the paper's way).

    Args:
        tokenizer: The model's.
        rows: What is learned.
        recipe: Template, lengths and mask_length.

    Returns:
        One example per row; its labels are the targets of its masks, in order.
    """
    fixed = recipe.mask_length if isinstance(recipe.mask_length, int) else None
    masks = fixed or recipe.max_answer_tokens
    prompts = _prompts(tokenizer, rows, recipe, 0, masks)
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    examples = []
    for prompt, answer in zip(prompts, _answer_ids(tokenizer, rows, masks), strict=True):
        targets = answer + [end] * (fixed - len(answer)) if fixed else answer or [end]
        surplus = slice(prompt.response + len(targets), prompt.response + masks)
        ids = np.delete(prompt.ids, surplus)
        examples.append({"input_ids": ids, "labels": np.asarray(targets, dtype=np.int32), "cut": bool(prompt.cut)})
    return examples


def causal_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: AnsweringRecipe) -> list[Example]:
    """Prompts followed by the answer and the end token, which alone carry the loss.

    Args:
        tokenizer: The model's.
        rows: What is learned.
        recipe: Template and lengths.

    Returns:
        One example per row; its labels are its ids, with ``IGNORED`` for the prompt.
    """
    prompts = _prompts(tokenizer, rows, recipe, recipe.max_answer_tokens + 1)
    examples = []
    answers = _answer_ids(tokenizer, rows, recipe.max_answer_tokens, recipe.answer_prefix)
    for prompt, answer in zip(prompts, answers, strict=True):
        answer_ids = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        labels = np.concatenate([np.full(len(prompt.ids), IGNORED, dtype=np.int32), answer_ids])
        examples.append({"input_ids": np.concatenate([prompt.ids, answer_ids]), "labels": labels, "cut": bool(prompt.cut)})
    return examples


def seq2seq_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: AnsweringRecipe) -> list[Example]:
    """Prompts for the encoder; the decoder learns the answer and the end token.

    Args:
        tokenizer: The model's.
        rows: What is learned.
        recipe: Template and lengths.

    Returns:
        One example per row; its labels are the answer's ids.
    """
    prompts = _prompts(tokenizer, rows, recipe, 0)
    return [
        {
            "input_ids": prompt.ids,
            "labels": np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32),
            "cut": bool(prompt.cut),
        }
        for prompt, answer in zip(prompts, _answer_ids(tokenizer, rows, recipe.max_answer_tokens), strict=True)
    ]


@dataclass(frozen=True)
class Collator:
    """Pads examples on the right and adds what the objective needs of their answers."""

    pad_id: int
    """Id of padding in input_ids."""
    answer_vectors: Tensor | None = None
    """What the vector of each answer is drawn to, shape (answers, d)."""
    side: str = "right"
    """Where padding stands."""
    mask_id: int | None = None
    """Id of the mask token, of a tokenizer that has one."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Make a batch.

        Args:
            examples: Examples of one kind.

        Returns:
            input_ids, attention_mask, labels; where there is a mask token also is_mask; with answer vectors also answer (ids) and
            vector (batch, d).
        """
        batch = self.padded(examples)
        if self.mask_id is not None:
            batch["is_mask"] = batch["input_ids"] == self.mask_id
        if self.answer_vectors is not None:
            batch["answer"] = torch.tensor([int(example["answer"]) for example in examples])
            batch["vector"] = self.answer_vectors[batch["answer"]].float()
        return batch

    def padded(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """input_ids, attention_mask and labels of a batch."""
        return {
            "input_ids": _pad([example["input_ids"] for example in examples], self.pad_id, self.side),
            "attention_mask": _pad([np.ones(len(example["input_ids"])) for example in examples], 0, self.side),
            "labels": _pad([example["labels"] for example in examples], IGNORED, self.side),
        }


def _pad(rows: Sequence[Any], value: int, side: str) -> Tensor:
    longest = max(len(row) for row in rows)
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for i, row in enumerate(rows):
        start = longest - len(row) if side == "left" else 0
        out[i, start : start + len(row)] = torch.from_numpy(np.asarray(row).astype(np.int64))
    return out
