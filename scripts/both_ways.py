#!/usr/bin/env python3
"""The ``inbedder`` command with Llama-like decoders whose prompts attend to both sides (a prefix LM, Raffel et al. 2020).

python scripts/both_ways.py finetune finetune/recipes/experiments/small-sweep.yaml --set training.output=runs/sweep/both-ways
python scripts/both_ways.py evaluate --model runs/sweep/both-ways -o finetune/results/small_sweep.json

An experiment of scripts/sweep_small.sh: each example is read alone, its prompt's positions see each other, its answer's what
stands before them. Only the vector of the prompt's last position (1st-gen) is computed so; answers are not.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.llama import modeling_llama

from finetune.answering import packing
from finetune.answering.examples import IGNORED
from inbedder.cli import main

causal_batch, causal_mask = packing.packed_batch, modeling_llama.create_causal_mask


def both_ways_batch(*args: Any) -> dict[str, Tensor]:
    """A packed batch, in which prompts see all of themselves."""
    batch = causal_batch(*args)
    prompt = (batch["labels"] == IGNORED) & (batch["owner"] != packing.NOBODY)
    own = batch["owner"].unsqueeze(2) == batch["owner"].unsqueeze(1)
    batch["attention_mask"] |= (own & prompt.unsqueeze(2) & prompt.unsqueeze(1)).unsqueeze(1)
    return batch


def both_ways_mask(attention_mask: Tensor | None, **given: Any) -> Any:
    """A mask that leaves out padding alone; one with heads, as training gives it, stays as it is."""
    if attention_mask is not None and attention_mask.dim() == 4:
        return causal_mask(attention_mask=attention_mask, **given)
    return create_bidirectional_mask(
        config=given["config"],
        inputs_embeds=given["inputs_embeds"],
        attention_mask=attention_mask,
        allow_is_bidirectional_skip=False,
    )


if __name__ == "__main__":
    modeling_llama.create_causal_mask = both_ways_mask
    packing.packed_batch = both_ways_batch
    packing.by_text = lambda examples: [[number] for number in range(len(examples))]
    main()
