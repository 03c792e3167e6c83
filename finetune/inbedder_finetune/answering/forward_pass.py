"""Forward passes of each family in training: logits where a label stands, and the states that predict the labels."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inbedder.backbones.late_interaction import ATTENTION
from inbedder.backbones.masked import kept_alone
from inbedder.backbones.packed_row import pack, parts_of
from inbedder.backbones.transformer import body_of
from inbedder_finetune.answering.examples import IGNORED

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ForwardOutput:
    """What one forward pass gives for a batch."""

    logits: Tensor
    """Logits where a label stands, shape (labels, vocabulary)."""
    labels: Tensor
    """The labels, shape (labels,)."""
    states: Tensor
    """The states of the last layer that predict the labels, shape (labels, d)."""
    owner: Tensor
    """The example of each label, shape (labels,); those of one example stand together, in order."""


@contextmanager
def last_states(body: nn.Module, keep: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Collect the last layer's states at every pass of a model in training, which may be wrapped: one thread trains it.

    Args:
        body: The model without its head.
        keep: Positions that alone reach the head, bool, shape (batch, positions), the same number in each row; None for all.

    Yields:
        A list that grows by one tensor, shape (batch, positions, d), at every pass.
    """
    states: list[Tensor] = []

    def look(_module: nn.Module, _args: Any, output: Any) -> Any:
        states.append(output[0])
        return output if keep is None else kept_alone(output, keep)

    handle = body.register_forward_hook(look)
    try:
        yield states
    finally:
        handle.remove()


def read_masked(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """A masked LM's pass, with logits at the masks alone.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, is_mask, labels (the targets of the masks, in order).

    Returns:
        Logits, labels and states.
    """
    if plain.config._attn_implementation == ATTENTION:
        return _read_late_interaction(model, plain, batch)
    is_mask = batch["is_mask"]
    body = body_of(plain)
    carries = batch["labels"] != IGNORED
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if bool(carries.all()):
        with last_states(body, is_mask) as states:
            logits = model(**inputs).logits.flatten(0, 1)
    else:
        with last_states(body) as states:
            logits = model(**inputs).logits[is_mask]
    return ForwardOutput(logits, batch["labels"][carries], states[0][is_mask], is_mask.nonzero()[:, 0])


def _read_late_interaction(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """A pass of a masked LM that reads each text and each question of the batch once, as in inference."""
    ids, is_mask = batch["input_ids"].cpu().numpy().astype(np.int32), batch["is_mask"].cpu().numpy()
    lengths, first = batch["attention_mask"].sum(1).tolist(), is_mask.argmax(1).tolist()
    masks = int(is_mask[0].sum())
    splits = batch["split"].tolist() if "split" in batch else [length // 2 for length in first]
    parts = [
        parts_of(row[:length], split, start, row[start + masks : length])
        for row, length, split, start in zip(ids, lengths, splits, first, strict=True)
    ]
    packed = pack(parts, masks, int(ids[0, first[0]]), plain.device)
    with last_states(body_of(plain), packed.is_mask) as states:
        logits = model(**packed.inputs).logits
    rows = torch.arange(len(parts), device=plain.device).repeat_interleave(masks)
    return ForwardOutput(logits[0], batch["labels"].flatten(), states[0][packed.is_mask], rows)


def read_causal(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """A causal LM's pass, with logits at the columns where any row of the batch answers.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, labels (``IGNORED`` at the prompt).

    Returns:
        Logits, labels and states.
    """
    next_label = F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    carries = next_label != IGNORED
    if "owner" in batch:
        return _read_packed(model, plain, batch, next_label, carries)
    columns = carries.any(0).nonzero().flatten()
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if "position_ids" in inspect.signature(body_of(plain).forward).parameters:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    logits, states = _causal_pass(model, plain, inputs, columns)
    return ForwardOutput(logits[carries[:, columns]], next_label[carries], states[carries], carries.nonzero()[:, 0])


def _causal_pass(model: Any, plain: PreTrainedModel, inputs: dict[str, Tensor], columns: Any) -> tuple[Tensor, Tensor]:
    """Logits at some columns, and the last layer's states."""
    body = body_of(plain)
    body = getattr(body, "decoder", body)  # OPT's head calls the decoder past its body
    with last_states(body) as states:
        logits = model(**inputs, use_cache=False, logits_to_keep=columns).logits
    return logits, states[0]


def _read_packed(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor], labels: Tensor, carries: Tensor) -> ForwardOutput:
    """A causal LM's pass over packs (``packing``): the head reads the labelled states alone, which stand anywhere."""
    seen = batch["attention_mask"]
    if plain.config._attn_implementation == "eager":  # which adds its mask to the scores
        seen = torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)
    inputs = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "attention_mask": seen}
    _, states = _causal_pass(model, plain, inputs, 1)
    owner = batch["owner"][carries]
    order = owner.argsort(stable=True)
    answer_states = states[carries][order]
    return ForwardOutput(plain.get_output_embeddings()(answer_states), labels[carries][order], answer_states, owner[order])


def read_seq2seq(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """An encoder-decoder's pass.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, labels (the answer).

    Returns:
        Logits, labels and the decoder's states.
    """
    config = plain.config
    answer_ids = batch["labels"].masked_fill(batch["labels"] == IGNORED, config.pad_token_id)
    start = torch.full_like(answer_ids[:, :1], config.decoder_start_token_id)
    with last_states(plain.get_decoder()) as states:
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=torch.cat([start, answer_ids[:, :-1]], 1),
            use_cache=False,
        ).logits
    carries = batch["labels"] != IGNORED
    return ForwardOutput(logits[carries], batch["labels"][carries], states[0][carries], carries.nonzero()[:, 0])


def pool_states(output: ForwardOutput, pooling: str | None) -> Tensor:
    """Pool the states that predict an answer to the vector that objectives train.

    Args:
        output: States and the example of each.
        pooling: "1st-gen" for the first of them, otherwise their mean.

    Returns:
        float32, shape (batch, d).
    """
    states, counts = output.states.float(), output.owner.bincount()
    if pooling == "1st-gen":
        return states[counts.cumsum(0) - counts]
    return states.new_zeros(len(counts), states.shape[1]).index_add(0, output.owner, states) / counts.unsqueeze(1)
