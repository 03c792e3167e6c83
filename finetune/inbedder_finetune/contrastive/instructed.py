"""Instructed texts as input of a sentence-transformers model whose pool leaves each row's instruction out.

sentence-transformers' ``Pooling(include_prompt=False)`` leaves out as many first tokens as the prompt has, one number for a
whole batch. Rows of MEDI have instructions of their own, so here the collator marks in each row what is not pooled (under the
name ``special_tokens_mask``, which reaches the pooling and not the model), and a hook takes it out of the pooling's
attention mask. The marks come from ``PromptTokenizer``, which also makes the prompts of inference: everything in front of the
first token that holds a character of the text, special tokens in front included; a token across the border holds text and is
pooled, and so are special tokens at the end. With one prompt per batch the vectors equal those of
``SentenceTransformer.encode(prompt=...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inbedder.backbones.transformer import pad_id_of
from inbedder.errors import InputError, RecipeError
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_finetune.contrastive.pairs import Instructed

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedTokenizerBase

UNPOOLED = "special_tokens_mask"


def instructed_prompts(tokenizer: PreTrainedTokenizerBase, max_length: int) -> PromptTokenizer:
    """The one tokenization of training and inference: instruction and text joined, special tokens in them as characters.

    Args:
        tokenizer: A fast one (offsets are needed).
        max_length: Longest input in tokens.

    Returns:
        A tokenizer of instructed texts.
    """
    return PromptTokenizer(tokenizer, get_template("instructor"), max_length)


def tokenized(prompts: PromptTokenizer, texts: Sequence[Instructed]) -> dict[str, Tensor]:
    """Tokenize instructions with their texts as ``InBedder`` does, cutting the texts' ends.

    Args:
        prompts: Of the template "instructor", with the longest input.
        texts: n instructed texts.

    Returns:
        The model's inputs, shape (n, p), and ``UNPOOLED``, 1 at tokens in front of the text.
    """
    rows = prompts([text for _, text in texts], [instruction for instruction, _ in texts])
    ids, attention = pad([row.ids for row in rows], pad_id_of(prompts.tokenizer))
    unpooled = torch.zeros_like(ids)
    for number, (row, (instruction, _)) in enumerate(zip(rows, texts, strict=True)):
        unpooled[number, : row.text[0] if instruction else 0] = 1
    return {"input_ids": ids, "attention_mask": attention.long(), UNPOOLED: unpooled}


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


def check_instructions(prompts: PromptTokenizer, instructions: Sequence[str]) -> None:
    """Refuse instructions that leave no room for a text.

    Args:
        prompts: As for ``tokenized``.
        instructions: Distinct instructions.

    Raises:
        RecipeError: Naming the first.
    """
    for instruction in instructions:
        try:
            taken = len(prompts([""], [instruction])[0].ids)
        except InputError:
            taken = prompts.max_length
        if taken >= prompts.max_length:
            raise RecipeError(
                f"An instruction takes {prompts.max_length} tokens or more, max_length={prompts.max_length}, and leaves no room "
                f"for a text: {instruction[:80]!r}. Raise max_length or shorten it."
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
        self.prompts = instructed_prompts(tokenizer, max_length)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Tokenize rows.

        Args:
            rows: Tables with query, positive (each instruction and text), negatives (a list of such) and perhaps anchor.

        Returns:
            ``query_input_ids``, ``positive_input_ids``, ``negative_0_input_ids`` and so on, as many negatives as each row has;
            where rows say whether they are anchors, ``label``, 1 for those that are.
        """
        columns = {name: [Instructed(*row[name]) for row in rows] for name in ("query", "positive")}
        for i in range(min(len(row["negatives"]) for row in rows)):
            columns[f"negative_{i}"] = [Instructed(*row["negatives"][i]) for row in rows]
        batch = {"label": torch.tensor([float(row["anchor"]) for row in rows])} if "anchor" in rows[0] else {}
        for name, texts in columns.items():
            for key, values in tokenized(self.prompts, texts).items():
                batch[f"{name}_{key}"] = values
        return batch
