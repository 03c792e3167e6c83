"""A cache of a causal LM's keys and values of texts, for the next question about them.

The paper's template puts the text first, so its keys and values serve every later question about it. The cache is in memory, with
the token ids as keys, so that no other prompt can use them. Above its limit it drops the least recently used texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.shared_prefix import explain_not_shared, extend_key_values
from inbedder.backbones.transformer import capture_layer, check_layer
from inbedder.cache.size_limit import parse_size
from inbedder.errors import InputError
from inbedder.options import Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import PromptTemplate

if TYPE_CHECKING:
    from inbedder.prompting.tokenization import PromptTokens


class KVCache:
    """Keys and values of texts by their token ids, shape (layers, 2, heads, tokens, width) per text."""

    def __init__(self, limit: int) -> None:
        """Start an empty cache for at most ``limit`` bytes of keys and values."""
        self.limit, self.size = limit, 0
        self._key_values: OrderedDict[bytes, Tensor] = OrderedDict()
        self._lock = Lock()

    def find(self, ids: bytes) -> Tensor | None:
        """Find the keys and values of token ids, given as bytes, and count this as a use; None if they are not cached."""
        with self._lock:
            if ids in self._key_values:
                self._key_values.move_to_end(ids)
            return self._key_values.get(ids)

    def keep(self, ids: bytes, key_values: Tensor) -> None:
        """Store the keys and values of token ids, and drop the least recently used ones above the limit."""
        size = key_values.numel() * key_values.element_size()
        if size > self.limit:
            return
        with self._lock:
            if ids not in self._key_values:
                self.size += size
            self._key_values[ids] = key_values
            while self.size > self.limit:
                _, dropped = self._key_values.popitem(last=False)
                self.size -= dropped.numel() * dropped.element_size()


def make_kv_cache(backbone: Backbone, pooling: str, template: PromptTemplate, size: str | int) -> KVCache:
    """Make an empty cache of a size in bytes or such as "2G"; refuse a model, pooling or template that cannot share a text."""
    limit = parse_size(size)
    reason = explain_not_shared(backbone, pooling, template)
    if reason or not isinstance(backbone, CausalBackbone):
        raise InputError(f"text_memory is for causal LMs and 1st-gen: {reason or 'this model has its own cache'}.")
    if limit is None:
        raise InputError("text_memory needs a limit, such as 2G.")
    return KVCache(limit)


@torch.inference_mode()
def embed_with_kv_cache(backbone: CausalBackbone, prompts: Sequence[PromptTokens], layer: int, cache: KVCache) -> Tensor:
    """Pool one batch by 1st-gen, computing only what follows each cached text.

    Args:
        backbone: A model for which ``shared_prefix.explain_not_shared`` gives None.
        prompts: Tokenized prompts, the text first.
        layer: 0 .. L, or negative from the end.
        cache: The cached texts; the other texts of the batch are added.

    Returns:
        float32, shape (batch, d), equal to a pass over full prompts up to rounding.
    """
    prefixes = [prompt.ids[: prompt.instruction[0]] for prompt in prompts]
    if not all(map(len, prefixes)):  # a prompt begins with the instruction
        return backbone.embed(prompts, "1st-gen", layer, Sampling())
    texts = {ids.tobytes(): ids for ids in prefixes}
    key_values = {key: tensor for key in texts if (tensor := cache.find(key)) is not None}
    if missing_keys := [key for key in texts if key not in key_values]:
        new_tensors = _compute_key_values(backbone, [texts[key] for key in missing_keys])
        for key, new_tensor in zip(missing_keys, new_tensors, strict=True):
            cache.keep(key, new_tensor)
            key_values[key] = new_tensor
    past_key_values, past_mask = _batch_key_values(backbone, [key_values[ids.tobytes()] for ids in prefixes])
    ids, new_mask = pad([prompt.ids[prompt.instruction[0] :] for prompt in prompts], backbone.pad_id)
    body, states = capture_layer(backbone.body, backbone.body, check_layer(layer, backbone.num_layers), backbone.num_layers)
    extend_key_values(backbone, body, ids, new_mask, torch.cat([past_mask, new_mask], 1), past_key_values)
    last = (new_mask.sum(1) - 1).to(states[0].device)
    return states[0][torch.arange(len(prompts), device=last.device), last].float()


def _compute_key_values(backbone: CausalBackbone, rows: Sequence[NDArray[np.int32]]) -> list[Tensor]:
    """Compute the keys and values of each row."""
    ids, mask = pad(rows, backbone.pad_id)
    past_key_values = extend_key_values(backbone, backbone.body, ids, mask, mask, None)
    stacked = torch.stack([torch.stack([layer.keys, layer.values]) for layer in past_key_values.layers])
    return [stacked[:, :, row, :, : len(ids)].clone() for row, ids in enumerate(rows)]


def _batch_key_values(backbone: CausalBackbone, rows: Sequence[Tensor]) -> tuple[DynamicCache, Tensor]:
    """Batch rows of keys and values as the model takes them, left-padded; return them and the attention mask."""
    layers, _, heads, _, width = rows[0].shape
    longest = max(row.shape[3] for row in rows)
    stacked = rows[0].new_zeros(layers, 2, len(rows), heads, longest, width)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        stacked[:, :, number, :, longest - row.shape[3] :] = row
        mask[number, longest - row.shape[3] :] = True
    past_key_values = DynamicCache(config=backbone.model.config)
    for number, (keys, values) in enumerate(stacked):
        past_key_values.update(keys, values, number)
    return past_key_values, mask
