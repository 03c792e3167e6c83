"""Script for a separate process: print the live tensors, the estimated memory and the get_peak memory of a step, in MiB."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model

from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.forward_pass import pool_states
from inbedder_finetune.answering.memory import measure_memory
from inbedder_finetune.answering.trainable_families import FAMILIES


def get_peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main(shape, lora, attention, bf16):
    wide = {"vocab_size": 49152, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
    deep = {"vocab_size": 500, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    torch.ones(64, 64).sum().item()
    before = get_peak()
    config = transformers.LlamaConfig(**(wide if shape == "wide" else deep), **heads, attn_implementation=attention)
    base_model = transformers.LlamaForCausalLM(config)
    model = get_peft_model(base_model, LoraConfig(r=16, target_modules="all-linear")) if lora == "lora" else base_model
    collator, family = Collator(0, side="left"), FAMILIES["causal"]
    estimate = measure_memory(model, base_model, family, collator, bf16=bf16 == "bf16", shards=1)
    ids = np.arange(200) % 400 + 5
    labels = np.where(np.arange(200) < (190 if shape == "deep" else 160), IGNORE_INDEX, ids)
    batch = collator([{"input_ids": ids, "labels": labels}] * 24)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16 == "bf16"):
            output = family.forward(model, base_model, batch)
            loss = (
                torch.nn.functional.cross_entropy(output.logits.float(), output.labels)
                + pool_states(output, "1st-gen").square().mean()
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del output, loss
    print(
        replace(estimate, overhead=1.0).estimate_peak(batch) / 2**20, estimate.estimate_peak(batch) / 2**20, get_peak() - before
    )


main(*sys.argv[1:])
