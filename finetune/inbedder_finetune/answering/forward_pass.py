"""Forward passes of each model family in training: logits and states at the labels."""

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

from inbedder.backbones.late_interaction import combine, read_texts
from inbedder.backbones.masked import select_positions
from inbedder.backbones.packed_row import pack, split_prompt
from inbedder.backbones.soft_tokens import get_called_body
from inbedder.backbones.transformer import get_body
from inbedder_finetune.answering.examples import IGNORE_INDEX

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ForwardOutput:
    """Output of a forward pass over a batch."""

    logits: Tensor
    """Logits of the labels, shape (labels, vocabulary)."""
    labels: Tensor
    """The labels, shape (labels,)."""
    states: Tensor
    """The last layer's states that predict the labels, shape (labels, d)."""
    owner: Tensor
    """Index of each label's example, shape (labels,); the labels of an example are neighbours, in order."""
    soft_states: Tensor | None = None
    """The last layer's states of soft tokens, shape (batch, K, d); None without soft tokens."""
    vectors: Tensor | None = None
    """The vectors, float32, shape (batch, d), of a model that pools its own; None pools the states."""


@contextmanager
def collect_last_states(body: nn.Module, keep: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Collect the last layer's states of every forward pass. The hook is safe because one thread trains the model.

    Args:
        body: The model without its head.
        keep: The positions that are passed on to the head, bool, shape (batch, positions), equally many per row; None keeps all.

    Yields:
        A list to which every pass appends a tensor of shape (batch, positions, d).
    """
    states: list[Tensor] = []

    def store_states(_module: nn.Module, _args: Any, output: Any) -> Any:
        states.append(output[0])
        return output if keep is None else select_positions(output, keep)

    handle = body.register_forward_hook(store_states)
    try:
        yield states
    finally:
        handle.remove()


def forward_masked(model: Any, base_model: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """Run a masked LM, with logits at the masks only.

    Args:
        model: The model to call, perhaps wrapped.
        base_model: The unwrapped model.
        batch: input_ids, attention_mask, is_mask, and labels (the targets of the masks, in order).

    Returns:
        Logits, labels and states.
    """
    is_mask = batch["is_mask"]
    body = get_body(base_model)
    has_label = batch["labels"] != IGNORE_INDEX
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if bool(has_label.all()):
        with collect_last_states(body, is_mask) as states:
            logits = model(**inputs).logits.flatten(0, 1)
    else:
        with collect_last_states(body) as states:
            logits = model(**inputs).logits[is_mask]
    return ForwardOutput(logits, batch["labels"][has_label], states[0][is_mask], is_mask.nonzero()[:, 0])


def forward_late_interaction(
    model: Any, base_model: PreTrainedModel, batch: dict[str, Tensor], text_body: nn.Module
) -> ForwardOutput:
    """Run a masked LM with late interaction, which reads each text and each question of the batch once, as in inference.

    Args:
        model: The model to call, perhaps wrapped.
        base_model: The unwrapped model.
        batch: input_ids, attention_mask, is_mask, labels, and split (where the instructions begin).
        text_body: The frozen base that reads texts.

    Returns:
        Logits, labels, states and vectors.
    """
    ids, is_mask = batch["input_ids"].cpu().numpy().astype(np.int32), batch["is_mask"].cpu().numpy()
    lengths, first = batch["attention_mask"].sum(1).tolist(), is_mask.argmax(1).tolist()
    masks = int(is_mask[0].sum())
    splits = batch["split"].tolist() if "split" in batch else [length // 2 for length in first]
    parts = [
        split_prompt(row[:length], split, start, row[start + masks : length])
        for row, length, split, start in zip(ids, lengths, splits, first, strict=True)
    ]
    packed = pack(parts, masks, int(ids[0, first[0]]), base_model.device)
    with torch.no_grad():
        text_memory, text_states = read_texts(text_body, packed)
    positions = torch.arange(packed.pairs["input_ids"].shape[1], device=base_model.device)
    with collect_last_states(get_body(base_model), positions[None] < packed.num_masks) as states:
        logits = model(**packed.pairs, text_states=text_memory).logits
    rows = torch.arange(len(parts), device=base_model.device).repeat_interleave(masks)
    vectors = combine(base_model, states[0][0], text_states, packed)
    return ForwardOutput(logits[0], batch["labels"].flatten(), states[0][0, : packed.num_masks], rows, vectors=vectors)


def forward_causal(model: Any, base_model: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """Run a causal LM, with logits at the columns where any row has a label.

    Args:
        model: The model to call, perhaps wrapped.
        base_model: The unwrapped model.
        batch: input_ids, attention_mask, and labels (``IGNORE_INDEX`` at the prompt).

    Returns:
        Logits, labels and states.
    """
    next_label = F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORE_INDEX)
    has_label = next_label != IGNORE_INDEX
    columns = has_label.any(0).nonzero().flatten()
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if "position_ids" in inspect.signature(get_body(base_model).forward).parameters:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with collect_last_states(get_called_body(base_model)) as states:
        logits = model(**inputs, use_cache=False, logits_to_keep=columns).logits[has_label[:, columns]]
    return ForwardOutput(logits, next_label[has_label], states[0][has_label], has_label.nonzero()[:, 0])


def forward_seq2seq(model: Any, base_model: PreTrainedModel, batch: dict[str, Tensor]) -> ForwardOutput:
    """Run an encoder-decoder.

    Args:
        model: The model to call, perhaps wrapped.
        base_model: The unwrapped model.
        batch: input_ids, attention_mask, and labels (the answer).

    Returns:
        Logits, labels and the decoder's states.
    """
    config = base_model.config
    answer_ids = batch["labels"].masked_fill(batch["labels"] == IGNORE_INDEX, config.pad_token_id)
    start = torch.full_like(answer_ids[:, :1], config.decoder_start_token_id)
    with collect_last_states(base_model.get_decoder()) as states:
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=torch.cat([start, answer_ids[:, :-1]], 1),
            use_cache=False,
        ).logits
    has_label = batch["labels"] != IGNORE_INDEX
    return ForwardOutput(logits[has_label], batch["labels"][has_label], states[0][has_label], has_label.nonzero()[:, 0])


def pool_states(output: ForwardOutput, pooling: str | None) -> Tensor:
    """Pool the states that predict an answer into the vector that objectives train.

    Args:
        output: Output of a forward pass.
        pooling: "1st-gen" takes the first state of an example, "soft-gen" those of its soft tokens, any other value their mean.

    Returns:
        float32, shape (batch, d); for "soft-gen" the vectors after 1 .. K soft tokens, shape (batch, K, d).
    """
    if output.vectors is not None:
        return output.vectors
    if pooling == "soft-gen":
        assert output.soft_states is not None
        soft_states = output.soft_states.float()
        return soft_states.cumsum(1) / torch.arange(1, soft_states.shape[1] + 1, device=soft_states.device).unsqueeze(1)
    states, counts = output.states.float(), output.owner.bincount()
    if pooling == "1st-gen":
        return states[counts.cumsum(0) - counts]
    return states.new_zeros(len(counts), states.shape[1]).index_add(0, output.owner, states) / counts.unsqueeze(1)
