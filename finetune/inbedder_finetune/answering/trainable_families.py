"""How each family of models learns to answer, one row each; ``inbedder.backbones.families`` says how it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inbedder_finetune.answering.examples import AnswerFormat, Example, causal_examples, masked_examples, seq2seq_examples
from inbedder_finetune.answering.forward_pass import ForwardOutput, read_causal, read_masked, read_seq2seq
from inbedder_finetune.answering.training_row import Row

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TrainingFamily:
    """One kind of model, as it is trained."""

    examples: Callable[[PreTrainedTokenizerBase, Sequence[Row], AnswerFormat], list[Example]]
    """From rows to token ids and labels."""
    read: Callable[[Any, PreTrainedModel, dict[str, Tensor]], ForwardOutput]
    """A pass of the model (as it is wrapped, and itself) over a batch."""
    needs_end: bool
    """Whether an end token closes its answers."""
    padding: str = "right"
    """Where padding stands; on the left, a decoder's labels stand in few columns."""
    shares_texts: bool = False
    """Whether a text's states are the same under every question, so that it can be read once (``packing``)."""


FAMILIES = {
    "causal": TrainingFamily(causal_examples, read_causal, needs_end=True, padding="left", shares_texts=True),
    "masked": TrainingFamily(masked_examples, read_masked, needs_end=False),
    "seq2seq": TrainingFamily(seq2seq_examples, read_seq2seq, needs_end=True),
}


def make_examples(
    kind: str, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], answer_format: AnswerFormat
) -> list[Example]:
    """Make the examples of any family.

    Args:
        kind: A name of ``FAMILIES``.
        tokenizer: The model's.
        rows: What is learned.
        answer_format: Template and lengths.

    Returns:
        One example per row: input_ids, labels, and cut (whether the text was cut to fit).
    """
    return FAMILIES[kind].examples(tokenizer, rows, answer_format)
