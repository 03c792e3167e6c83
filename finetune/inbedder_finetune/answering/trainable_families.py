"""Model families in training; ``inbedder.backbones.families`` describes them in inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from inbedder.backbones.late_interaction import add_gate, copy_body
from inbedder.backbones.question_adapter import can_read_texts_apart
from inbedder.backbones.weights import LoadedModel
from inbedder.errors import RecipeError
from inbedder.vectors.pooling import list_poolings
from inbedder_finetune.answering.causal_pass import CausalPass
from inbedder_finetune.answering.examples import (
    AnswerFormat,
    Example,
    make_causal_examples,
    make_masked_examples,
    make_seq2seq_examples,
)
from inbedder_finetune.answering.forward_pass import (
    ForwardOutput,
    forward_causal,
    forward_late_interaction,
    forward_masked,
    forward_seq2seq,
)
from inbedder_finetune.answering.language_filter import fit_language_filter
from inbedder_finetune.answering.plan import ModelPlan
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


FAMILIES = {
    "causal": TrainingFamily(make_causal_examples, forward_causal, needs_end=True, padding="left"),
    "masked": TrainingFamily(make_masked_examples, forward_masked, needs_end=False),
    "seq2seq": TrainingFamily(make_seq2seq_examples, forward_seq2seq, needs_end=True),
}


def choose_family(loaded: LoadedModel, plan: ModelPlan, cache: str | None) -> TrainingFamily:
    """Choose the training functions of a model, with the forward pass that its plan needs.

    Args:
        loaded: The model; late interaction adds a gate, and perhaps a language filter.
        plan: Its pooling and adapters.
        cache: Folder of cached vectors; None caches nothing.

    Returns:
        The family.

    Raises:
        RecipeError: If the family lacks the pooling, or the model cannot read a text without its adapters.
    """
    family = FAMILIES[loaded.kind]
    if plan.pooling not in (None, *list_poolings(loaded.kind)):
        raise RecipeError(f"{plan.name} is a {loaded.kind} LM, without the pooling {plan.pooling!r}. Change objective.pooling.")
    if plan.has_question_adapter and not (loaded.kind == "causal" and can_read_texts_apart(loaded.model)):
        raise RecipeError(
            f"{plan.name} ({loaded.model.config.model_type}) cannot read a text without its adapters; causal LMs with a whole "
            "key-value cache can. Set lora.tokens to all."
        )
    if plan.late_interaction:
        add_gate(loaded.model)
        if plan.languages is not None:
            fit_language_filter(loaded.model, plan.name, plan.languages, cache)
        return replace(family, forward=partial(forward_late_interaction, text_body=copy_body(loaded.model)))
    if not (plan.soft_tokens or plan.has_question_adapter):
        return family
    return replace(family, forward=CausalPass(plan.soft_tokens, plan.has_question_adapter))


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
