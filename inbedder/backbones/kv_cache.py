"""What a causal LM has read of a corpus, kept for the next question over it.

The paper's pattern puts the text first, so that a text's keys and values serve every question that is asked of it later. They are
kept in memory, by the token ids that they stand for, so that no other prompt can meet them; where they take more than the limit,
those that were used least recently go.
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
from inbedder.backbones.shared_prefix import read_on, why_not_shared
from inbedder.backbones.transformer import check_layer, tapped
from inbedder.cache.size_limit import parse_size
from inbedder.errors import InputError
from inbedder.options import Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.templates import PromptTemplate

if TYPE_CHECKING:
    from inbedder.prompting.tokenization import PromptTokens


class TextMemory:
    """Keys and values of texts, shape (layers, 2, heads, tokens, width) each, by their token ids."""

    def __init__(self, limit: int) -> None:
        """Start an empty memory of at most ``limit`` bytes of keys and values."""
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._lock = Lock()

    def find(self, ids: bytes) -> Tensor | None:
        """Look up the keys and values of token ids, given as bytes, and count that as a use; None where there are none."""
        with self._lock:
            if ids in self._kept:
                self._kept.move_to_end(ids)
            return self._kept.get(ids)

    def keep(self, ids: bytes, states: Tensor) -> None:
        """Store the keys and values of token ids, and drop the least recently used where there is no room."""
        size = states.numel() * states.element_size()
        if size > self.limit:
            return
        with self._lock:
            if ids not in self._kept:
                self.size += size
            self._kept[ids] = states
            while self.size > self.limit:
                _, dropped = self._kept.popitem(last=False)
                self.size -= dropped.numel() * dropped.element_size()


def memory_for(backbone: Backbone, pooling: str, template: PromptTemplate, size: str | int) -> TextMemory:
    """Create an empty memory of a size in bytes or such as "2G"; refuse a model, pooling or template that cannot share a text."""
    limit = parse_size(size)
    reason = why_not_shared(backbone, pooling, template)
    if reason or not isinstance(backbone, CausalBackbone):
        raise InputError(f"text_memory is for causal LMs and 1st-gen: {reason or 'this model keeps its own'}.")
    if limit is None:
        raise InputError("text_memory needs a limit, such as 2G.")
    return TextMemory(limit)


@torch.inference_mode()
def embed_remembered(backbone: CausalBackbone, prompts: Sequence[PromptTokens], layer: int, memory: TextMemory) -> Tensor:
    """1st-gen of one batch, of which only what stands behind the texts is read where these are remembered.

    Args:
        backbone: A model for which ``shared_prefix.why_not_shared`` gives None.
        prompts: Tokenized prompts, the text first.
        layer: 0 .. L, or negative from the end.
        memory: What was read before; what is read now joins it.

    Returns:
        float32, shape (batch, d), equal to a pass over whole prompts but for rounding.
    """
    before = [prompt.ids[: prompt.instruction[0]] for prompt in prompts]
    if not all(map(len, before)):  # nothing stands before the instruction
        return backbone.embed(prompts, "1st-gen", layer, Sampling())
    texts = {ids.tobytes(): ids for ids in before}
    known = {key: states for key in texts if (states := memory.find(key)) is not None}
    if unread := [key for key in texts if key not in known]:
        for key, states in zip(unread, _read(backbone, [texts[key] for key in unread]), strict=True):
            memory.keep(key, states)
            known[key] = states
    past, seen = _laid_out(backbone, [known[ids.tobytes()] for ids in before])
    ids, new = pad([prompt.ids[prompt.instruction[0] :] for prompt in prompts], backbone.pad_id)
    body, found = tapped(backbone.body, backbone.body, check_layer(layer, backbone.num_layers), backbone.num_layers)
    read_on(backbone, body, ids, new, torch.cat([seen, new], 1), past)
    last = (new.sum(1) - 1).to(found[0].device)
    return found[0][torch.arange(len(prompts), device=last.device), last].float()


def _read(backbone: CausalBackbone, rows: Sequence[NDArray[np.int32]]) -> list[Tensor]:
    """Keys and values of each row."""
    ids, real = pad(rows, backbone.pad_id)
    past = read_on(backbone, backbone.body, ids, real, real, None)
    every = torch.stack([torch.stack([layer.keys, layer.values]) for layer in past.layers])
    return [every[:, :, row, :, : len(ids)].clone() for row, ids in enumerate(rows)]


def _laid_out(backbone: CausalBackbone, rows: Sequence[Tensor]) -> tuple[DynamicCache, Tensor]:
    """Rows of keys and values as the model takes them, padded on the left, and which positions are real."""
    layers, _, heads, _, width = rows[0].shape
    longest = max(row.shape[3] for row in rows)
    every = rows[0].new_zeros(layers, 2, len(rows), heads, longest, width)
    real = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        every[:, :, number, :, longest - row.shape[3] :] = row
        real[number, longest - row.shape[3] :] = True
    past = DynamicCache(config=backbone.model.config)
    for number, (keys, values) in enumerate(every):
        past.update(keys, values, number)
    return past, real
