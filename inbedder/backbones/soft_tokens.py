"""Soft tokens: a causal LM reads the expected embedding of its next token instead of one token (GIRCSE, ICLR 2026).

After the prompt, K times: the next input is softmax(logits) @ input embeddings. The vector is the mean of the K states at these
inputs; the state of the prompt's last token, which predicts the first of them, is left out (arXiv 2509.24291 and the authors'
code, which also uses temperature 1). Nothing is sampled, so every step is differentiable; training takes the same steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from inbedder.backbones.transformer import get_body
from inbedder.vectors.pooling import widen


def get_called_body(model: Any) -> nn.Module:
    """Return the module whose output a causal LM passes to its head: OPT's head calls the decoder inside the body."""
    body = get_body(model)
    decoder = getattr(body, "decoder", None)
    return decoder if isinstance(decoder, nn.Module) else body


def run_soft_tokens(
    model: Any, base_model: Any, logits: Tensor, past_key_values: Any, mask: Tensor, count: int, *, takes_positions: bool
) -> None:
    """Feed soft tokens to a causal LM after its prompts; a hook on the model collects their states.

    Args:
        model: The model to call, perhaps a copy or wrapped.
        base_model: The unwrapped model, whose input embeddings are read.
        logits: Logits at each prompt's last token, shape (batch, vocabulary).
        past_key_values: Keys and values of the prompts; the soft tokens' are added.
        mask: Attention mask of the past, shape (batch, past positions); positions with 0 are not read.
        count: K, the number of soft tokens.
        takes_positions: Whether the model takes ``position_ids``.
    """
    embeddings = base_model.get_input_embeddings()
    weight, scale = embeddings.weight, getattr(embeddings, "embed_scale", 1.0)  # Gemma 3 scales inside its embeddings
    for _ in range(count):
        soft_tokens = widen(logits).softmax(-1).to(weight.dtype) @ weight * scale
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        positions = {"position_ids": mask.long().sum(1, keepdim=True) - 1} if takes_positions else {}
        output = model(
            inputs_embeds=soft_tokens.unsqueeze(1),
            attention_mask=mask,
            past_key_values=past_key_values,
            use_cache=True,
            **positions,
        )
        logits, past_key_values = output.logits[:, -1], output.past_key_values
