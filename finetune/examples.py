"""From rows to token ids: the prompts of inference, plus the answer that carries the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from finetune.data import Row
from finetune.recipe import Recipe
from inbedder.prompting import get_template
from inbedder.tokenization import PromptTokenizer, clean_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Example = dict[str, Any]
IGNORED = -100


def _answer_ids(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], limit: int) -> list[list[int]]:
    answers = [clean_text(row.answer) for row in rows]
    encoded = tokenizer(answers, add_special_tokens=False, split_special_tokens=True, truncation=False, verbose=False)
    return [ids[:limit] for ids in encoded["input_ids"]]


def masked_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: Recipe) -> list[Example]:
    """Prompts whose masks stand for the answer.

    With a fixed number of masks an answer is cut to it and a shorter one is filled with the end token; with
    ``mask_length: answer`` there are as many masks as the answer has tokens (the paper's way).

    Args:
        tokenizer: The model's.
        rows: What is learned.
        recipe: Template, lengths and mask_length.

    Returns:
        One example a row: input_ids, and targets for its masks, in order.
    """
    fixed = recipe.mask_length if isinstance(recipe.mask_length, int) else None
    masks = fixed or recipe.max_answer_tokens
    prompts = PromptTokenizer(tokenizer, get_template(recipe.template), recipe.max_length, masks)(
        [row.text for row in rows], [row.instruction for row in rows]
    )
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    examples = []
    for prompt, answer in zip(prompts, _answer_ids(tokenizer, rows, masks), strict=True):
        targets = answer + [end] * (fixed - len(answer)) if fixed else answer or [end]
        surplus = slice(prompt.response + len(targets), prompt.response + masks)
        examples.append({"input_ids": np.delete(prompt.ids, surplus), "targets": np.asarray(targets, dtype=np.int32)})
    return examples


def causal_examples(tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], recipe: Recipe) -> list[Example]:
    """Prompts followed by the answer and the end token, which alone carry the loss.

    Args:
        tokenizer: The model's.
        rows: What is learned.
        recipe: Template and lengths.

    Returns:
        One example a row: input_ids, and labels with ``IGNORED`` for the prompt.
    """
    room = recipe.max_answer_tokens + 1
    prompts = PromptTokenizer(tokenizer, get_template(recipe.template), recipe.max_length - room)(
        [row.text for row in rows], [row.instruction for row in rows]
    )
    examples = []
    for prompt, answer in zip(prompts, _answer_ids(tokenizer, rows, recipe.max_answer_tokens), strict=True):
        said = np.asarray([*answer, tokenizer.eos_token_id], dtype=np.int32)
        labels = np.concatenate([np.full(len(prompt.ids), IGNORED, dtype=np.int32), said])
        examples.append({"input_ids": np.concatenate([prompt.ids, said]), "labels": labels})
    return examples


@dataclass(frozen=True)
class Collator:
    """Pads examples on the right and stacks what they carry."""

    pad_id: int
    """Id of padding in input_ids."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Make a batch.

        Args:
            examples: Examples of one kind.

        Returns:
            Padded tensors by name, with attention_mask.
        """
        batch = {"attention_mask": _pad([np.ones(len(one["input_ids"])) for one in examples], 0)}
        for name in examples[0]:
            if name == "vector":
                batch[name] = torch.from_numpy(np.stack([one[name] for one in examples])).float()
            elif name == "answer":
                batch[name] = torch.tensor([one[name] for one in examples])
            else:
                batch[name] = _pad([one[name] for one in examples], self.pad_id if name == "input_ids" else IGNORED)
        return batch


def _pad(rows: Sequence[Any], value: int) -> Tensor:
    longest = max(len(row) for row in rows)
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.from_numpy(np.asarray(row).astype(np.int64))
    return out
