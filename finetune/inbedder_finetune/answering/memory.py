"""How much memory a step needs, counted before the first: what autograd keeps of a few small passes, scaled to the longest rows.

A pass keeps for its backward pass, besides the weights,

    k + R (a P + b P^2) + c N        bytes

for R rows of P positions with N labels: k are copies of weights in bfloat16, a what layers, adapters and norms keep of each
position, b attention, c logits. Four small passes of the very model (its adapters, precision, attention and checkpointing as the
recipe has them) give k, a, b and c. Weights, gradients and AdamW's two moments are added, and what else there is of logits
(``LOGITS``). On a CPU the process holds more than what is alive: malloc keeps freed blocks between those in use (``HEAP``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inbedder_finetune.answering.examples import IGNORED, Collator, Example
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.trainable_families import TrainingFamily
from inbedder_finetune.preflight import GIB, get_free_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

PROBES = ((32, 8), (64, 8), (96, 8), (64, 16))
"""Positions and labels of the small passes."""
HELD = 12
"""Bytes of a trained number: its gradient and AdamW's two moments, float32."""
HEAP = 1.6
"""What a process on a CPU holds at its peak for each byte that a step keeps: 1.5 to 1.8 by glibc's malloc, measured."""
LOGITS = 4
"""Logits, their log-softmax, and the gradients of both are there at once; a pass keeps the second of them."""
ROOM = 0.8
"""Share of the free memory that ``training.micro_batch`` is chosen for."""


@dataclass(frozen=True)
class MemoryEstimate:
    """What training needs, in bytes."""

    resident: float
    """Weights, gradients and moments."""
    weights: float
    """Of these, the weights, which are there already."""
    coefficients: tuple[float, float, float, float]
    """k, a, b and c."""
    overhead: float = 1.0
    """Bytes held for each byte kept."""

    def of(self, batch: dict[str, Tensor]) -> float:
        """Bytes of one process at the peak of a batch: the shape of its ids and the number of its labels count."""
        rows, positions = batch["input_ids"].shape
        k, a, b, c = self.coefficients
        labels = int((batch["labels"] != IGNORED).sum())
        return self.resident + self.overhead * (k + rows * (a * positions + b * positions**2)) + LOGITS * c * labels


def measure_memory(
    model: nn.Module, plain: PreTrainedModel, family: TrainingFamily, collator: Collator, *, bf16: bool, shards: int
) -> MemoryEstimate:
    """Measure what passes of a model keep.

    Args:
        model: With its adapters, if any.
        plain: The model itself.
        family: How it is read.
        collator: Makes its batches.
        bf16: Whether to train in bfloat16 autocast.
        shards: Processes that share weights, gradients and moments.

    Returns:
        What its training needs.
    """
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()) / shards
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) / shards
    saved_bytes = [_count_saved_bytes(model, plain, family, _probe(collator, *shape), bf16) for shape in PROBES]
    terms = np.array([[1, length, length**2, labels] for length, labels in PROBES], dtype=float)
    k, a, b, c = (max(float(number), 0.0) for number in np.linalg.solve(terms, np.array(saved_bytes, dtype=float)))
    overhead = HEAP if plain.device.type == "cpu" else 1.0
    return MemoryEstimate(weights + HELD * trained, weights, (k / shards, a, b, c), overhead)


def _probe(collator: Collator, length: int, labels: int) -> dict[str, Tensor]:
    """A batch of one row; a masked LM's labels stand for masks in it."""
    ids = np.arange(10, 10 + length) % 50 + 5
    if collator.mask_id is None:
        targets = np.full(length, IGNORED)
        targets[-labels:] = ids[-labels:]
    else:
        ids[-labels:] = collator.mask_id
        targets = np.arange(labels) + 5
    plain = Collator(collator.pad_id, side=collator.side, mask_id=collator.mask_id)
    return plain([{"input_ids": ids, "labels": targets}])


def _count_saved_bytes(
    model: nn.Module, plain: PreTrainedModel, family: TrainingFamily, batch: dict[str, Tensor], bf16: bool
) -> int:
    """Count the bytes that autograd keeps of a pass and its loss, without the parameters."""
    device = plain.device
    weights = {parameter.untyped_storage().data_ptr() for parameter in (*model.parameters(), *model.buffers())}
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    was_training = model.training
    model.train()
    random = torch.get_rng_state()
    half: Any = torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), half:
        read = family.read(model, plain, {name: value.to(device) for name, value in batch.items()})
        loss = F.cross_entropy(read.logits.float(), read.labels) + read.states.float().sum()
    del loss, read
    torch.set_rng_state(random)
    model.train(was_training)
    return sum(storages.values())


def choose_micro_batch(plan: Plan, estimate: MemoryEstimate, collator: Collator, examples: Any, lengths: Sequence[int]) -> int:
    """Choose how many rows fit into memory at once, where the recipe does not; logs what is needed.

    Args:
        plan: How many rows a step has.
        estimate: From ``measure_memory``.
        collator: Makes the batches.
        examples: The learned examples.
        lengths: Tokens of each.

    Returns:
        Rows that one process holds at once.
    """
    share, recipe_size = plan.rows_per_process, plan.schedule.micro_batch
    longest = [int(number) for number in np.argsort(-np.asarray(lengths), kind="stable")[:share]]
    rows: list[Example] = [examples[number] for number in longest]
    free = get_free_memory() + estimate.weights / GIB
    for size in [recipe_size] if recipe_size else [n for n in range(share, 0, -1) if share % n == 0]:
        needed = estimate.of(collator.padded(rows[:size])) / GIB
        if needed <= ROOM * free:
            break
    choice = "" if recipe_size else f" with training.micro_batch={size} (chosen)"
    logger.info("About %.1f GiB a process are needed%s, %.1f are free.", needed, choice, free)
    if needed > free:
        knobs = "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, a lora section"
        logger.warning("About %.1f GiB a process are needed and %.1f are free. Try %s.", needed, free, knobs)
    return size
