"""Shared prefixes: the keys and values of a text are computed once for several instructions.

The paper's template puts the text first, so a causal LM's prompts of one text differ only after it. Their token ids determine the
shared prefix; if the adapter's base reads the text, the prefix ends where the instruction begins. Late-interaction models share
texts without this module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.kv_cache import KVCache, has_full_cache
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.transformer import capture_layer, check_layer
from inbedder.cache.size_limit import parse_size
from inbedder.errors import InputError
from inbedder.options import Sampling
from inbedder.prompting.batching import TOKEN_BUDGET, pad
from inbedder.prompting.templates import PromptTemplate
from inbedder.prompting.tokenization import count_common_ids

if TYPE_CHECKING:
    from inbedder.prompting.tokenization import PromptTokens


DEFAULT_TEXT_MEMORY = 500_000_000
"""Bytes of the cache of texts of models whose base reads them: a command that embeds and answers reads each text once."""


def explain_not_shared(backbone: Backbone, pooling: str, template: PromptTemplate) -> str | None:
    """Explain why prompts of one text cannot share its states under a pooling and template; None when they can."""
    if backbone.reads_padding:
        return "the model reads padding, so that prompts of different lengths cannot share a batch"
    is_late_interaction = isinstance(backbone, LateInteractionBackbone) and pooling == "avg-gen"
    if not backbone.continues_prompt and not is_late_interaction:
        return f"in a {backbone.kind} model the text's states depend on the instruction"
    if pooling not in ("1st-gen", "soft-gen") and not is_late_interaction:
        return f"{pooling} needs more than the prompt's last state"
    if not template.text_first:
        return f"the template {template.name!r} puts the instruction first"
    if isinstance(backbone, CausalBackbone) and not has_full_cache(backbone.model):
        return f"{backbone.model.config.model_type} caches only a window of the text's states"
    return None


def make_kv_cache(backbone: Backbone, pooling: str, template: PromptTemplate, size: str | int | None) -> KVCache | None:
    """Make an empty cache of texts.

    Args:
        backbone: The model.
        pooling: Its pooling.
        template: Its prompt template.
        size: Size in bytes or such as "2G"; None takes ``DEFAULT_TEXT_MEMORY`` if the adapter's base reads the texts.

    Returns:
        The cache; None for a model that caches no texts by default.

    Raises:
        InputError: If the size is not valid, or the model, pooling or template cannot share a text.
    """
    reason = explain_not_shared(backbone, pooling, template)
    if size is None:
        has_reader = isinstance(backbone, CausalBackbone) and backbone.text_model is not None and not reason
        return KVCache(DEFAULT_TEXT_MEMORY) if has_reader else None
    limit = parse_size(size)
    if reason or not isinstance(backbone, CausalBackbone):
        raise InputError(f"text_memory is for causal LMs, 1st-gen and soft-gen: {reason or 'this model has its own cache'}.")
    if limit is None:
        raise InputError("text_memory needs a limit, such as 2G.")
    return KVCache(limit)


@torch.inference_mode()
def embed_shared(
    backbone: Backbone,
    prompts: Sequence[Sequence[PromptTokens]],
    pooling: str,
    layer: int,
    sampling: Sampling,
    token_budget: int = TOKEN_BUDGET,
    kv_cache: KVCache | None = None,
) -> Tensor:
    """Embed one batch of texts under several instructions.

    Args:
        backbone: A model for which ``explain_not_shared`` gives None.
        prompts: For each text its prompts, one per instruction.
        pooling: The pooling of that check.
        layer: 0 .. L, or negative from the end.
        sampling: ``max_new_tokens`` is the number of soft tokens of soft-gen.
        token_budget: Maximum number of tokens whose keys and values are held at once; it limits the instructions per pass.
        kv_cache: The cached texts of a model whose base reads them; None caches them for this batch.

    Returns:
        float32, shape (texts, instructions, d), equal to separate passes up to rounding.
    """
    if not isinstance(backbone, CausalBackbone):  # vLLM's prefix cache, or late interaction, shares the states
        flat = [prompt for text_prompts in prompts for prompt in text_prompts]
        pooled = backbone.embed(flat, pooling, layer, sampling)
        return pooled.view(len(prompts), -1, pooled.shape[1])
    count, longest = len(prompts[0]), max(len(prompt.ids) for text_prompts in prompts for prompt in text_prompts)
    group_size = max(1, min(count, token_budget // (len(prompts) * longest)))
    groups = [[row[start : start + group_size] for row in prompts] for start in range(0, count, group_size)]
    if backbone.text_model is not None:
        kv_cache = kv_cache or KVCache(sys.maxsize)
        flat_groups = [[prompt for row in group for prompt in row] for group in groups]
        vectors = [backbone.embed(flat, pooling, layer, sampling, (), kv_cache) for flat in flat_groups]
    else:
        vectors = _embed_groups(backbone, prompts, groups, pooling, layer, sampling)
    return torch.cat([rows.view(len(prompts), -1, rows.shape[1]) for rows in vectors], 1)


def _embed_groups(
    backbone: CausalBackbone,
    prompts: Sequence[Sequence[PromptTokens]],
    groups: Sequence[Sequence[Sequence[PromptTokens]]],
    pooling: str,
    layer: int,
    sampling: Sampling,
) -> list[Tensor]:
    """Embed groups of prompts after the ids that all prompts of a text share."""
    layer = check_layer(layer, backbone.num_layers)
    prefix_lengths = [count_common_ids([prompt.ids for prompt in text_prompts]) for text_prompts in prompts]
    prefixes = [text_prompts[0].ids[:length] for text_prompts, length in zip(prompts, prefix_lengths, strict=True)]
    _, prefix_mask = pad(prefixes, backbone.pad_id, "left")
    past_key_values = None
    if prefix_mask.any():
        past_key_values = backbone.body(**backbone.make_inputs(prefixes), use_cache=True).past_key_values
    vectors = []
    for number, group in enumerate(groups):
        cache = deepcopy(past_key_values) if number < len(groups) - 1 else past_key_values
        if cache is not None:
            cache.batch_repeat_interleave(len(group[0]))
        suffixes = [prompt.ids[length:] for row, length in zip(group, prefix_lengths, strict=True) for prompt in row]
        inputs = backbone.make_inputs(suffixes, "left", prefix_mask.repeat_interleave(len(group[0]), 0))
        if pooling == "soft-gen":
            vectors.append(backbone.pool_soft_tokens(inputs, cache, layer, sampling.max_new_tokens))
        else:
            body, states = capture_layer(backbone.body, backbone.body, layer, backbone.num_layers)
            body(**inputs, past_key_values=cache, use_cache=True)
            vectors.append(states[0][:, -1].float())
    return vectors
