"""Model families in training; ``inbedder.backbones.families`` describes them in inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inbedder_finetune.answering.examples import (
    AnswerFormat,
    Example,
    make_causal_examples,
    make_masked_examples,
    make_seq2seq_examples,
)
from inbedder_finetune.answering.forward_pass import ForwardOutput, forward_causal, forward_masked, forward_seq2seq
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TrainingFamily:
    """Training functions and properties of a model family."""

    make_examples: Callable[[PreTrainedTokenizerBase, Sequence[Row], AnswerFormat], list[Example]]
    """Function that tokenizes rows."""
    forward: Callable[[Any, PreTrainedModel, dict[str, Tensor]], ForwardOutput]
    """Function that runs the model (perhaps wrapped; the unwrapped model is the second argument) over a batch."""
    needs_end: bool
    """Whether answers end with the end token."""
    padding: str = "right"
    """Padding side; left padding aligns a decoder's labels in few columns."""
    shares_texts: bool = False
    """Whether the states of a text are the same under every question, so that it can be read once (``packing``)."""


FAMILIES = {
    "causal": TrainingFamily(make_causal_examples, forward_causal, needs_end=True, padding="left", shares_texts=True),
    "masked": TrainingFamily(make_masked_examples, forward_masked, needs_end=False),
    "seq2seq": TrainingFamily(make_seq2seq_examples, forward_seq2seq, needs_end=True),
}


def make_examples(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat
) -> list[Example]:
    """Tokenize rows for a model family.

    Args:
        kind: A key of ``FAMILIES``.
        tokenizer: The model's tokenizer.
        rows: Training rows.
        answer_format: Template and lengths.

    Returns:
        One example per row with input_ids, labels and is_cut (whether the text was truncated).
    """
    return FAMILIES[kind].make_examples(tokenizer, rows, answer_format)
