"""A cache of a causal LM's keys and values of texts, for the next question about them.

The paper's template puts the text first, so its keys and values serve every later question about it. The cache is in memory, with
the token ids as keys, so that no other prompt can use them. Above its limit it drops the least recently used texts. Models whose
adapters apply to the question only share the keys and values of their base: its revision is part of the keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inbedder.backbones.transformer import get_body

if TYPE_CHECKING:
    from transformers import DynamicCache

    from inbedder.backbones.causal import CausalBackbone
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


@dataclass(frozen=True)
class ReadTexts:
    """The keys and values of what precedes each prompt's instruction."""

    past_key_values: Any
    """Keys and values of the texts, left-padded; None if every prompt begins with its instruction."""
    mask: Tensor | None
    """Attention mask of these positions, bool, shape (batch, longest text)."""
    following_ids: list[NDArray[np.int32]]
    """Each prompt's ids from its instruction on."""


def has_full_cache(model: Any) -> bool:
    """Return whether a model's key-value cache keeps all positions; some keep a window."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def find_question(instruction_start: int, length: int) -> int:
    """Return the index at which a prompt's question begins; its last token, which predicts the answer, is never the text's."""
    return min(instruction_start, length - 1)


def read_texts(backbone: CausalBackbone, prompts: Sequence[PromptTokens], cache: KVCache) -> ReadTexts:
    """Look up or compute the keys and values of texts, each distinct one once, and the ids that follow them."""
    starts = [find_question(prompt.instruction[0], len(prompt.ids)) for prompt in prompts]
    prefixes = [prompt.ids[:start] for prompt, start in zip(prompts, starts, strict=True)]
    following_ids = [prompt.ids[start:] for prompt, start in zip(prompts, starts, strict=True)]
    revision = backbone.text_revision.encode()
    keys = [revision + ids.tobytes() for ids in prefixes]
    texts = {key: ids for key, ids in zip(keys, prefixes, strict=True) if len(ids)}
    if not texts:
        return ReadTexts(None, None, following_ids)
    key_values = {key: tensor for key in texts if (tensor := cache.find(key)) is not None}
    if missing_keys := [key for key in texts if key not in key_values]:
        new_tensors = _compute_key_values(backbone, [texts[key] for key in missing_keys])
        for key, new_tensor in zip(missing_keys, new_tensors, strict=True):
            cache.keep(key, new_tensor)
            key_values[key] = new_tensor
    nothing = next(iter(key_values.values()))[:, :, :, :0]  # before a prompt that begins with its instruction
    past_key_values, mask = _batch_key_values(backbone, [key_values.get(key, nothing) for key in keys])
    return ReadTexts(past_key_values, mask, following_ids)


def _compute_key_values(backbone: CausalBackbone, rows: Sequence[NDArray[np.int32]]) -> list[Tensor]:
    """Compute the keys and values of each row."""
    body = backbone.body if backbone.text_model is None else get_body(backbone.text_model)
    past_key_values = body(**backbone.make_inputs(rows, "right"), use_cache=True).past_key_values
    stacked = torch.stack([torch.stack([layer.keys, layer.values]) for layer in past_key_values.layers])
    return [stacked[:, :, row, :, : len(ids)].clone() for row, ids in enumerate(rows)]


def _batch_key_values(backbone: CausalBackbone, rows: Sequence[Tensor]) -> tuple[DynamicCache, Tensor]:
    """Batch rows of keys and values as the model takes them, left-padded; return them and the attention mask."""
    from transformers import DynamicCache

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
