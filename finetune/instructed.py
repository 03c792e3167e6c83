"""Instructed texts as input of a sentence-transformers model whose pool leaves each row's instruction out.

sentence-transformers' ``Pooling(include_prompt=False)`` leaves out as many first tokens as the prompt has, one number for a
whole batch. Rows of MEDI have instructions of their own, so here the collator marks in each row what is not pooled (under the
name ``special_tokens_mask``, which reaches the pooling and not the model), and a hook takes it out of the pooling's
attention mask. The marks come from the offsets of the one tokenization that the model reads: everything up to the last token
that ends within the instruction, special tokens in front included; a token across the border holds text and is pooled, and so
are special tokens at the end. With one prompt a batch the vectors equal those of ``SentenceTransformer.encode(prompt=...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from finetune.pairs import Instructed
from inbedder.errors import RecipeError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedTokenizerBase

UNPOOLED = "special_tokens_mask"


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[Instructed], max_length: int) -> dict[str, Tensor]:
    """Tokenize instructions with their texts, cutting the texts' ends.

    Args:
        tokenizer: A fast one (offsets are needed) that pads and cuts on the right.
        texts: n instructed texts.
        max_length: Longest input in tokens.

    Returns:
        The model's inputs, shape (n, p), and ``UNPOOLED``, 1 at tokens in front of the text.
    """
    joined = [instruction + text for instruction, text in texts]
    marks = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
    encoded = tokenizer(joined, truncation=True, max_length=max_length, padding=True, return_tensors="pt", **marks)
    ends = encoded.pop("offset_mapping")[..., 1]
    border = torch.tensor([[len(instruction)] for instruction, _ in texts])
    instructing = (ends <= border) & (border > 0) & (encoded.pop("special_tokens_mask") == 0)
    after = torch.arange(1, ends.shape[1] + 1)
    first = (instructing * after).amax(1, keepdim=True)  # the first token behind the instruction, 0 without one
    return {**encoded, UNPOOLED: (after <= first).long()}


def leave_out(pooling: Any) -> RemovableHandle:
    """Let a pooling module read ``UNPOOLED``; its class and what it saves stay as they are.

    Args:
        pooling: sentence-transformers' Pooling.

    Returns:
        The hook's handle.
    """

    def before(_module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        features = dict(inputs[0])
        if UNPOOLED in features:
            features["attention_mask"] = features["attention_mask"] * (1 - features[UNPOOLED])
        return (features, *inputs[1:])

    handle: RemovableHandle = pooling.register_forward_pre_hook(before)
    return handle


def check_instructions(tokenizer: PreTrainedTokenizerBase, instructions: Sequence[str], max_length: int) -> None:
    """Refuse instructions that leave no room for a text.

    Args:
        tokenizer: The model's.
        instructions: Distinct instructions.
        max_length: Longest input in tokens.

    Raises:
        RecipeError: Naming the first.
    """
    for instruction, ids in zip(instructions, tokenizer(list(instructions))["input_ids"], strict=True):
        if len(ids) >= max_length:
            raise RecipeError(
                f"An instruction takes {len(ids)} tokens of max_length={max_length} and leaves no room for a text: "
                f"{instruction[:80]!r}. Raise max_length or shorten it."
            )


class InstructedCollator:
    """Batches of rows as sentence-transformers' trainer takes them: one set of inputs for query, positive and each negative."""

    valid_label_columns: tuple[str, ...] = ()

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        """Take the tokenizer.

        Args:
            tokenizer: A fast one.
            max_length: Longest input in tokens.
        """
        self.tokenizer, self.max_length = tokenizer, max_length

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Tokenize rows.

        Args:
            rows: Tables with query, positive (each instruction and text) and negatives (a list of such).

        Returns:
            ``query_input_ids``, ``positive_input_ids``, ``negative_0_input_ids`` and so on, as many negatives as each row has.
        """
        columns = {name: [Instructed(*row[name]) for row in rows] for name in ("query", "positive")}
        for i in range(min(len(row["negatives"]) for row in rows)):
            columns[f"negative_{i}"] = [Instructed(*row["negatives"][i]) for row in rows]
        batch = {}
        for name, texts in columns.items():
            for key, values in tokenized(self.tokenizer, texts, self.max_length).items():
                batch[f"{name}_{key}"] = values
        return batch
