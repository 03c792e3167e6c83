"""Several instructions over one text: the text's keys and values once, the instructions on top of them.

The paper's pattern puts the text first, so that a causal LM's prompts of one text differ only behind it. What they share is read
off their token ids, never assumed. Masked LMs trained for it (``late_interaction``) share texts by themselves.
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
from inbedder.backbones.transformer import check_layer, tapped
from inbedder.options import Sampling
from inbedder.prompting.batching import TOKEN_BUDGET, pad
from inbedder.prompting.templates import PromptTemplate
from inbedder.prompting.tokenization import common_length

if TYPE_CHECKING:
    from inbedder.prompting.tokenization import PromptTokens


def why_not_shared(backbone: Backbone, pooling: str, template: PromptTemplate) -> str | None:
    """Explain why prompts of one text cannot share its states under a pooling and template; None when they can."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    apart = isinstance(backbone, LateInteractionBackbone) and pooling == "avg-gen"
    if not backbone.continues_prompt and not apart:
        return f"in a model of the kind {backbone.kind!r} the text's states depend on the instruction"
    if pooling != "1st-gen" and not apart:
        return f"{pooling} needs more than the prompt's last state"
    if not template.text_first:
        return f"the template {template.name!r} puts the instruction first"
    if isinstance(backbone, CausalBackbone) and any(
        type(layer) is not DynamicLayer for layer in DynamicCache(config=backbone.model.config).layers
    ):
        return f"{backbone.model.config.model_type} keeps only a window of the text's states"
    return None


@torch.inference_mode()
def embed_shared(
    backbone: Backbone, prompts: Sequence[Sequence[PromptTokens]], layer: int, token_budget: int = TOKEN_BUDGET
) -> Tensor:
    """The default pooling of one batch of texts under several instructions.

    Args:
        backbone: A model for which ``why_not_shared`` gives None.
        prompts: For each text its prompts, one per instruction.
        layer: 0 .. L, or negative from the end.
        token_budget: Most tokens whose keys and values are held at once; instructions go in groups under it.

    Returns:
        float32, shape (texts, instructions, d), equal to separate passes but for rounding.
    """
    if not isinstance(backbone, CausalBackbone):  # vLLM's prefix cache, or late interaction, shares the states
        flat = [prompt for of_text in prompts for prompt in of_text]
        pooled = backbone.embed(flat, backbone.poolings[0], layer, Sampling())
        return pooled.view(len(prompts), -1, pooled.shape[1])
    shared = [common_length([prompt.ids for prompt in of_text]) for of_text in prompts]
    ids, prefix = pad([of_text[0].ids[:length] for of_text, length in zip(prompts, shared, strict=True)], backbone.pad_id, "left")
    count, longest = len(prompts[0]), max(len(prompt.ids) for of_text in prompts for prompt in of_text)
    size = max(1, min(count, token_budget // (len(prompts) * longest)))
    past = None
    if prefix.any():
        past = read_on(backbone, backbone.body, ids, prefix, prefix, None)
    found = []
    for start in range(0, count, size):
        of_text = [row[start : start + size] for row in prompts]
        ends = [one.ids[length:] for row, length in zip(of_text, shared, strict=True) for one in row]
        ids, suffix = pad(ends, backbone.pad_id)
        each = len(of_text[0])
        cache = deepcopy(past) if start + size < count else past
        if cache is not None:
            cache.batch_repeat_interleave(each)
        whole = torch.cat([prefix.repeat_interleave(each, 0), suffix], 1)
        body, states = tapped(backbone.body, backbone.body, check_layer(layer, backbone.num_layers), backbone.num_layers)
        read_on(backbone, body, ids, suffix, whole, cache)
        last = suffix.sum(1).to(states[0].device) - 1
        vectors = states[0][torch.arange(len(ends), device=last.device), last].float()
        found.append(vectors.view(len(prompts), each, -1))
    return torch.cat(found, 1)


def read_on(backbone: CausalBackbone, body: nn.Module, ids: Tensor, new: Tensor, whole: Tensor, past: Any) -> Any:
    """Pass over new positions behind those that were read.

    Args:
        backbone: The model.
        body: Its body, or a copy that leaves states behind.
        ids: Token ids, shape (batch, new positions).
        new: Which of these are no padding, bool, of the same shape.
        whole: The same for all positions, those of the past in front.
        past: Keys and values of the past, or None.

    Returns:
        Keys and values of all positions.
    """
    device = backbone.model.device
    inputs = {"input_ids": ids.to(device), "attention_mask": whole.long().to(device)}
    if backbone.takes_positions:
        inputs["position_ids"] = (whole.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :].to(device)
    return body(**inputs, past_key_values=past, use_cache=True).past_key_values
