"""Texts with instructions as inputs of a sentence-transformers model that does not pool the instruction.

sentence-transformers' ``Pooling(include_prompt=False)`` excludes the same number of first tokens in all rows of a batch. Rows of
MEDI have different instructions, so the collator marks the tokens to exclude per row (as ``special_tokens_mask``, which reaches
the pooling but not the model), and a hook removes them from the pooling's attention mask. ``PromptTokenizer``, which also makes
the prompts of inference, marks all tokens before the first one with a character of the text, including special tokens. A token
that spans instruction and text is pooled, and so are special tokens at the end. With one prompt per batch the vectors equal those
of ``SentenceTransformer.encode(prompt=...)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inbedder.backbones.transformer import get_pad_id
from inbedder.errors import InputError, RecipeError
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import get_template
from inbedder.prompting.tokenization import PromptTokenizer
from inbedder_finetune.contrastive.contrastive_losses import MISSING_TEXT
from inbedder_finetune.contrastive.pairs import InstructedText

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedTokenizerBase

UNPOOLED_MASK = "special_tokens_mask"
"""Key of the mask of tokens that are not pooled."""


def make_prompt_tokenizer(tokenizer: PreTrainedTokenizerBase, max_length: int) -> PromptTokenizer:
    """Make the tokenizer of training and inference, which joins instruction and text and treats special tokens in them as text.

    Args:
        tokenizer: A fast tokenizer, since offsets are needed.
        max_length: Maximum input length in tokens.

    Returns:
        A tokenizer of texts with instructions.
    """
    return PromptTokenizer(tokenizer, get_template("instructor"), max_length)


def tokenize_texts(prompt_tokenizer: PromptTokenizer, texts: Sequence[InstructedText]) -> dict[str, Tensor]:
    """Tokenize texts with their instructions as ``InBedder`` does, truncating the texts.

    Args:
        prompt_tokenizer: Result of ``make_prompt_tokenizer``.
        texts: n texts with instructions.

    Returns:
        The model's inputs, shape (n, p), and ``UNPOOLED_MASK``, which is 1 at the tokens before the text.
    """
    rows = prompt_tokenizer([text for _, text in texts], [instruction for instruction, _ in texts])
    ids, attention = pad([row.ids for row in rows], get_pad_id(prompt_tokenizer.tokenizer))
    unpooled = torch.zeros_like(ids)
    for number, (row, (instruction, _)) in enumerate(zip(rows, texts, strict=True)):
        unpooled[number, : row.text[0] if instruction else 0] = 1
    return {"input_ids": ids, "attention_mask": attention.long(), UNPOOLED_MASK: unpooled}


def skip_instructions(pooling: Any) -> RemovableHandle:
    """Make a pooling module skip the tokens of ``UNPOOLED_MASK``, by a hook that is not saved with it.

    Args:
        pooling: A ``Pooling`` module of sentence-transformers.

    Returns:
        Handle of the hook.
    """

    def mask_instructions(_module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        features = dict(inputs[0])
        if UNPOOLED_MASK in features:
            features["attention_mask"] = features["attention_mask"] * (1 - features[UNPOOLED_MASK])
        return (features, *inputs[1:])

    handle: RemovableHandle = pooling.register_forward_pre_hook(mask_instructions)
    return handle


def check_instructions(prompt_tokenizer: PromptTokenizer, instructions: Sequence[str]) -> None:
    """Check that instructions leave tokens for a text.

    Args:
        prompt_tokenizer: Result of ``make_prompt_tokenizer``.
        instructions: Distinct instructions.

    Raises:
        RecipeError: If an instruction is too long; the message names the first one.
    """
    max_length = prompt_tokenizer.max_length
    for instruction in instructions:
        try:
            length = len(prompt_tokenizer([""], [instruction])[0].ids)
        except InputError:
            length = max_length
        if length >= max_length:
            raise RecipeError(
                f"An instruction fills max_length={max_length} and leaves no tokens for a text: {instruction[:80]!r}. Raise "
                "max_length, or shorten the instruction."
            )


class InstructedCollator:
    """Collator for sentence-transformers' trainer, with one set of inputs for query, positive and each negative."""

    valid_label_columns: tuple[str, ...] = ()

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        """Set the tokenizer.

        Args:
            tokenizer: A fast tokenizer.
            max_length: Maximum input length in tokens.
        """
        self.prompt_tokenizer = make_prompt_tokenizer(tokenizer, max_length)

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Tokenize rows.

        Args:
            rows: Tables with query and positive (each instruction and text), negatives (a list of such), and anchor.

        Returns:
            ``query_input_ids``, ``positive_input_ids``, ``negative_0_input_ids`` and so on, for the largest number of negatives
            of a row; and ``label``, the labels of ``compute_loss``. A row with fewer negatives repeats its positive, which the
            loss ignores.
        """
        count = max(len(row["negatives"]) for row in rows)
        names = ["query", "positive", *(f"negative_{i}" for i in range(count))]
        texts = [[row["query"], row["positive"], *row["negatives"]] for row in rows]
        numbers: dict[str, int] = {}
        ids = [[numbers.setdefault(text, len(numbers)) for _, text in row_texts] for row_texts in texts]
        batch = {
            "label": torch.tensor(
                [
                    [int(row["anchor"]), *row_ids, *[MISSING_TEXT] * (len(names) - len(row_ids))]
                    for row, row_ids in zip(rows, ids, strict=True)
                ]
            )
        }
        for i, name in enumerate(names):
            column = [InstructedText(*row_texts[i if i < len(row_texts) else 1]) for row_texts in texts]
            for key, values in tokenize_texts(self.prompt_tokenizer, column).items():
                batch[f"{name}_{key}"] = values
        return batch
