"""Shared prefixes: the keys and values of a text are computed once for several instructions.

The paper's template puts the text first, so a causal LM's prompts of one text differ only after it. Their token ids determine the
shared prefix. Late-interaction models share texts without this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.transformer import capture_layer, check_layer
from inbedder.options import Sampling
from inbedder.prompting.batching import TOKEN_BUDGET, pad
from inbedder.prompting.templates import PromptTemplate
from inbedder.prompting.tokenization import count_common_ids

if TYPE_CHECKING:
    from inbedder.prompting.tokenization import PromptTokens


def explain_not_shared(backbone: Backbone, pooling: str, template: PromptTemplate) -> str | None:
    """Explain why prompts of one text cannot share its states under a pooling and template; None when they can."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    if backbone.reads_padding:
        return "the model reads padding, so that prompts of different lengths cannot share a batch"
    is_late_interaction = isinstance(backbone, LateInteractionBackbone) and pooling == "avg-gen"
    if not backbone.continues_prompt and not is_late_interaction:
        return f"in a {backbone.kind} model the text's states depend on the instruction"
    if pooling != "1st-gen" and not is_late_interaction:
        return f"{pooling} needs more than the prompt's last state"
    if not template.text_first:
        return f"the template {template.name!r} puts the instruction first"
    if isinstance(backbone, CausalBackbone) and any(
        type(layer) is not DynamicLayer for layer in DynamicCache(config=backbone.model.config).layers
    ):
        return f"{backbone.model.config.model_type} caches only a window of the text's states"
    return None


@torch.inference_mode()
def embed_shared(
    backbone: Backbone, prompts: Sequence[Sequence[PromptTokens]], layer: int, token_budget: int = TOKEN_BUDGET
) -> Tensor:
    """Embed one batch of texts under several instructions with the default pooling.

    Args:
        backbone: A model for which ``explain_not_shared`` gives None.
        prompts: For each text its prompts, one per instruction.
        layer: 0 .. L, or negative from the end.
        token_budget: Maximum number of tokens whose keys and values are held at once; it limits the instructions per pass.

    Returns:
        float32, shape (texts, instructions, d), equal to separate passes up to rounding.
    """
    if not isinstance(backbone, CausalBackbone):  # vLLM's prefix cache, or late interaction, shares the states
        flat = [prompt for text_prompts in prompts for prompt in text_prompts]
        pooled = backbone.embed(flat, backbone.poolings[0], layer, Sampling())
        return pooled.view(len(prompts), -1, pooled.shape[1])
    prefix_lengths = [count_common_ids([prompt.ids for prompt in text_prompts]) for text_prompts in prompts]
    ids, prefix_mask = pad(
        [text_prompts[0].ids[:length] for text_prompts, length in zip(prompts, prefix_lengths, strict=True)],
        backbone.pad_id,
        "left",
    )
    count, longest = len(prompts[0]), max(len(prompt.ids) for text_prompts in prompts for prompt in text_prompts)
    group_size = max(1, min(count, token_budget // (len(prompts) * longest)))
    past_key_values = None
    if prefix_mask.any():
        past_key_values = extend_key_values(backbone, backbone.body, ids, prefix_mask, prefix_mask, None)
    vector_groups = []
    for start in range(0, count, group_size):
        group = [row[start : start + group_size] for row in prompts]
        suffixes = [prompt.ids[length:] for row, length in zip(group, prefix_lengths, strict=True) for prompt in row]
        ids, suffix_mask = pad(suffixes, backbone.pad_id)
        group_count = len(group[0])
        cache = deepcopy(past_key_values) if start + group_size < count else past_key_values
        if cache is not None:
            cache.batch_repeat_interleave(group_count)
        mask = torch.cat([prefix_mask.repeat_interleave(group_count, 0), suffix_mask], 1)
        body, states = capture_layer(backbone.body, backbone.body, check_layer(layer, backbone.num_layers), backbone.num_layers)
        extend_key_values(backbone, body, ids, suffix_mask, mask, cache)
        last = suffix_mask.sum(1).to(states[0].device) - 1
        vectors = states[0][torch.arange(len(suffixes), device=last.device), last].float()
        vector_groups.append(vectors.view(len(prompts), group_count, -1))
    return torch.cat(vector_groups, 1)


def extend_key_values(
    backbone: CausalBackbone, body: nn.Module, ids: Tensor, new_mask: Tensor, mask: Tensor, past_key_values: Any
) -> Any:
    """Compute the keys and values of new positions after those of the past.

    Args:
        backbone: The model.
        body: Its body, or a copy of it that captures states.
        ids: Token ids, shape (batch, new positions).
        new_mask: Attention mask of the new positions, bool, the same shape.
        mask: Attention mask of all positions, the past first.
        past_key_values: Keys and values of the past, or None.

    Returns:
        Keys and values of all positions.
    """
    device = backbone.model.device
    inputs = {"input_ids": ids.to(device), "attention_mask": mask.long().to(device)}
    if backbone.takes_positions:
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -new_mask.shape[1] :].to(device)
    return body(**inputs, past_key_values=past_key_values, use_cache=True).past_key_values
