"""Memory estimate of a training step, from the tensors that autograd saves in a few small passes.

Besides the weights, a pass over R rows of P positions with N labels saves for its backward pass

    k + R (a P + b P^2) + c N        bytes

where k are bfloat16 copies of the weights, a the tensors per position of layers, adapters and norms, b attention, and c logits.
Four small passes of the model, with the recipe's adapters, precision, attention and checkpointing, give k, a, b and c. Weights,
gradients, AdamW's two moments, and further copies of the logits (``LOGIT_COPIES``) are added. On a CPU the process uses more
memory than its live tensors, since malloc keeps freed blocks (``HEAP_OVERHEAD``).
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

from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator, Example
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.trainable_families import TrainingFamily
from inbedder_finetune.preflight import GIB, MEMORY_HINT, get_free_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

PROBE_SHAPES = ((32, 8), (64, 8), (96, 8), (64, 16))
"""Numbers of positions and labels of the small passes."""
OPTIMIZER_BYTES_PER_PARAMETER = 12
"""Bytes per trained parameter: the gradient and AdamW's two moments, in float32."""
HEAP_OVERHEAD = 1.6
"""Peak memory of a CPU process per byte of live tensors; measured values with glibc's malloc are 1.5 to 1.8."""
LOGIT_COPIES = 4
"""Copies of the logits at the peak: logits, log-softmax, and the gradients of both. A pass saves one of them."""
MEMORY_SHARE = 0.8
"""Share of the free memory that an automatic ``training.micro_batch`` may use."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory that training needs, in bytes."""

    resident: float
    """Weights, gradients and moments, in bytes."""
    weights: float
    """The weights only, which are already in memory, in bytes."""
    coefficients: tuple[float, float, float, float]
    """k, a, b and c of the module's formula."""
    overhead: float = 1.0
    """Bytes in use per byte of live tensors."""

    def estimate_peak(self, batch: dict[str, Tensor]) -> float:
        """Estimate the peak memory of one process for a batch, in bytes."""
        rows, positions = batch["input_ids"].shape
        k, a, b, c = self.coefficients
        labels = int((batch["labels"] != IGNORE_INDEX).sum())
        return self.resident + self.overhead * (k + rows * (a * positions + b * positions**2)) + LOGIT_COPIES * c * labels


def measure_memory(
    model: nn.Module, base_model: PreTrainedModel, family: TrainingFamily, collator: Collator, *, bf16: bool, shards: int
) -> MemoryEstimate:
    """Measure the memory of small forward passes, and derive the estimate.

    Args:
        model: The model, with its adapters if any.
        base_model: The model without adapters.
        family: The family of the model.
        collator: Collator of its batches.
        bf16: Whether to train in bfloat16 autocast.
        shards: Number of processes that share weights, gradients and moments.

    Returns:
        The memory that training needs.
    """
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()) / shards
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) / shards
    saved_bytes = [_count_saved_bytes(model, base_model, family, _make_probe(collator, *shape), bf16) for shape in PROBE_SHAPES]
    terms = np.array([[1, length, length**2, labels] for length, labels in PROBE_SHAPES], dtype=float)
    k, a, b, c = (max(float(number), 0.0) for number in np.linalg.solve(terms, np.array(saved_bytes, dtype=float)))
    overhead = HEAP_OVERHEAD if base_model.device.type == "cpu" else 1.0
    return MemoryEstimate(weights + OPTIMIZER_BYTES_PER_PARAMETER * trained, weights, (k / shards, a, b, c), overhead)


def _make_probe(collator: Collator, length: int, labels: int) -> dict[str, Tensor]:
    """Make a batch of one row; a masked LM gets a mask per label."""
    ids = np.arange(10, 10 + length) % 50 + 5
    if collator.mask_id is None:
        targets = np.full(length, IGNORE_INDEX)
        targets[-labels:] = ids[-labels:]
    else:
        ids[-labels:] = collator.mask_id
        targets = np.arange(labels) + 5
    probe_collator = Collator(collator.pad_id, side=collator.side, mask_id=collator.mask_id)
    return probe_collator([{"input_ids": ids, "labels": targets}])


def _count_saved_bytes(
    model: nn.Module, base_model: PreTrainedModel, family: TrainingFamily, batch: dict[str, Tensor], bf16: bool
) -> int:
    """Count the bytes that autograd saves in a forward pass and its loss, without the parameters."""
    device = base_model.device
    weights = {parameter.untyped_storage().data_ptr() for parameter in (*model.parameters(), *model.buffers())}
    storages: dict[int, int] = {}

    def record_storage(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    was_training = model.training
    model.train()
    random = torch.get_rng_state()
    half: Any = torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor), half:
        output = family.forward(model, base_model, {name: value.to(device) for name, value in batch.items()})
        loss = F.cross_entropy(output.logits.float(), output.labels) + output.states.float().sum()
    del loss, output
    torch.set_rng_state(random)
    model.train(was_training)
    return sum(storages.values())


def choose_micro_batch(plan: Plan, estimate: MemoryEstimate, collator: Collator, examples: Any, lengths: Sequence[int]) -> int:
    """Choose the largest micro-batch that fits into memory, unless the recipe sets one; log the memory it needs.

    Args:
        plan: The plan of the run.
        estimate: Result of ``measure_memory``.
        collator: Collator of the batches.
        examples: The training examples.
        lengths: Length of each example in tokens.

    Returns:
        Number of rows per process and forward pass.
    """
    share, recipe_size = plan.rows_per_process, plan.schedule.micro_batch
    longest = [int(number) for number in np.argsort(-np.asarray(lengths), kind="stable")[:share]]
    rows: list[Example] = [examples[number] for number in longest]
    free = get_free_memory() + estimate.weights / GIB
    for size in [recipe_size] if recipe_size else [n for n in range(share, 0, -1) if share % n == 0]:
        required = estimate.estimate_peak(collator.pad_examples(rows[:size])) / GIB
        if required <= MEMORY_SHARE * free:
            break
    choice = "" if recipe_size else f" with training.micro_batch={size} (chosen automatically)"
    logger.info("Training needs about %.1f GiB per process%s; %.1f GiB are free.", required, choice, free)
    if required > free:
        logger.warning("Training needs about %.1f GiB per process, but %.1f GiB are free. Try %s.", required, free, MEMORY_HINT)
    return size
