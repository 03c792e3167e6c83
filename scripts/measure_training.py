#!/usr/bin/env python3
"""Tokens per second of a training step of a causal LM: adapters in some or all layers, attention, weights, all weights.

python scripts/measure_training.py MODEL-FOLDER    (made the speeds of finetune/results/small.json; leave the machine to it alone)
"""

from __future__ import annotations

import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

ROWS, POSITIONS, LABELS = 16, 190, 24
UPPER_HALF = r".*layers\.(1[5-9]|2[0-9])\..*_proj"


def measure(
    folder: str, attention: str, modules: str | None = "all-linear", dtype: torch.dtype = torch.float32, *, compiled: bool = False
) -> float:
    """Tokens per second of the third step."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    body = model.model
    if modules:
        model = get_peft_model(model, LoraConfig(r=32, lora_alpha=64, target_modules=modules))
    body, head = torch.compile(body) if compiled else body, model.get_output_embeddings()
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], 1e-4)
    ids = torch.randint(10, 40000, (ROWS, POSITIONS))
    seen = torch.ones(ROWS, 1, POSITIONS, POSITIONS, dtype=torch.bool).tril()
    mask = seen if attention == "sdpa" else torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    places = torch.randint(0, POSITIONS, (ROWS, LABELS))
    seconds = 0.0
    for _ in range(4):
        started = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            states = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            logits = head(states[torch.arange(ROWS).unsqueeze(1), places].flatten(0, 1)).float()
        logits.logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - started
    return ROWS * POSITIONS / seconds


def main(folder: str) -> None:
    """Print one line per way."""
    bf16 = torch.bfloat16
    print(f"LoRA 32, all layers, sdpa, weights bfloat16: {measure(folder, 'sdpa', dtype=bf16):.0f}")
    print(f"LoRA 32, all layers, sdpa, weights float32: {measure(folder, 'sdpa'):.0f}")
    print(f"LoRA 32, all layers, eager: {measure(folder, 'eager', dtype=bf16):.0f}")
    print(f"LoRA 32, upper half, eager: {measure(folder, 'eager', UPPER_HALF, bf16):.0f}")
    print(f"LoRA 32, all layers, eager, torch.compile: {measure(folder, 'eager', dtype=bf16, compiled=True):.0f}")
    print(f"all weights, eager: {measure(folder, 'eager', None):.0f}")


main(sys.argv[1])
