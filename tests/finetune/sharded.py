"""Script for torchrun with two processes: a sharded model (FSDP2 over gloo) has the gradients of the full model."""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.forward_pass import forward_causal, forward_masked, pool_states
from inbedder_finetune.answering.objectives.amortized_reencoding import AmortizedReencoding


def compute_batch_loss(kind, model, batch):
    output = forward_causal(model, model, batch) if kind == "causal" else forward_masked(model, model, batch)
    tokens = torch.nn.functional.cross_entropy(output.logits, output.labels)
    objective = AmortizedReencoding(reencode_weight=1)
    return tokens + objective.compute_loss(pool_states(output, None), batch["vector"], batch["answer"])


def main(kind, folder):
    dist.init_process_group("gloo")
    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    full_model, sharded = auto.from_pretrained(folder).eval(), auto.from_pretrained(folder).eval()
    mesh = init_device_mesh("cpu", (2,))
    layers = sharded.model.layers if kind == "causal" else sharded.base_model.encoder.layer
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    labels = [IGNORE_INDEX, IGNORE_INDEX, 7, 2] if kind == "causal" else [7]
    rows = [{"input_ids": np.array([5, first, 4 if kind != "causal" else 7, 2]), "labels": np.array(labels)} for first in (6, 9)]
    batch = {**Collator(0, mask_id=4)(rows), "vector": torch.eye(2, 32), "answer": torch.arange(2)}
    for model in (full_model, sharded):
        compute_batch_loss(kind, model, batch).backward()
    for (name, one), two in zip(full_model.named_parameters(), sharded.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(
                two.grad.full_tensor(), one.grad, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )
    dist.barrier()
    print("equal", flush=True)
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it


main(*sys.argv[1:])
