"""Attention of a packed row (``packed_row``): groups of tokens that see each other, gathered, attended, and put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from inbedder.backbones.packed_row import Group

SCORES = 3 * 2**18
"""How many scores are held at once on a CPU."""


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    groups: Sequence[Group] | None = None,
    back: Tensor | None = None,
    scratch: Scratch | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of a packed row; of any other batch, torch's.

    Args:
        module: The layer's attention.
        query: Shape (1, heads, tokens, width), or (batch, ...) of other batches.
        key: The same.
        value: The same.
        attention_mask: Of other batches.
        groups: Who sees whom.
        back: Where in the groups' rows each token stands.
        scratch: For a pass on a CPU without gradients.
        **options: scaling and dropout.

    Returns:
        Shape (1, tokens, heads, width), and no weights.
    """
    if groups is None or back is None:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    flat = [states[0].transpose(0, 1) for states in (query, key, value)]
    how = options.get("scaling") or query.shape[-1] ** -0.5, options.get("dropout", 0.0)
    rows = []
    for group in groups:
        if scratch is not None:
            rows.append(_attended_in_parts(flat, group, how[0], scratch))
            continue
        q, k, v = (
            states.index_select(0, places.flatten()).view(*places.shape, *states.shape[1:]).transpose(1, 2)
            for states, places in zip(flat, (group.queries, group.keys, group.keys), strict=True)
        )
        rows.append(_attended(q, k, v, group.bias.to(q.dtype), *how).transpose(1, 2).flatten(0, 1))
    return torch.cat(rows).index_select(0, back)[None], None


def _attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, dropout: float) -> Tensor:
    """Attention with gradients or on another device; on a CPU it is written out, as the way back is slow in torch's fused one."""
    rows, heads, length, width = query.shape
    keys = key.shape[2]
    if query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    many = rows * heads
    bias = bias.expand(rows, heads, length, keys).reshape(many, length, keys)
    q, k, v = query.reshape(many, length, width), key.reshape(many, keys, width), value.reshape(many, keys, width)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
    weights = torch.nn.functional.dropout(scores.softmax(-1, dtype=torch.float32), dropout).to(v.dtype)
    return torch.bmm(weights, v).view(rows, heads, length, width)


class Scratch:
    """Memory for the scores of attention, kept for all layers of a pass.

    Memory that is freed goes back to the system and comes again page by page, which can take as long as the attention itself.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Take memory of a shape, its contents undefined: the same for the same name, whose dtype never changes."""
        size = math.prod(shape)
        if name not in self._memory or len(self._memory[name]) < size:
            self._memory[name] = torch.empty(size, dtype=dtype)
        return self._memory[name][:size].view(*shape)


def _attended_in_parts(states: Sequence[Tensor], group: Group, scale: float, scratch: Scratch) -> Tensor:
    """Attention without gradients on a CPU, written out in parts whose scores stay in its cache.

    torch's softmax in bfloat16 is slow where rows are no multiple of 32 long; in float32 it is not.

    Args:
        states: Queries, keys and values of a packed row, shape (tokens, heads, width) each.
        group: Who sees whom.
        scale: Of the scores.
        scratch: Memory for them.

    Returns:
        Shape (rows of the group * L, heads, width).
    """
    (rows, length), keys = group.queries.shape, group.keys.shape[1]
    _, heads, width = states[0].shape
    at_once = max(1, SCORES // (length * keys))
    some_heads, some_rows = min(heads, at_once), max(1, at_once // heads)
    found = torch.empty(rows, length, heads, width, dtype=states[0].dtype)
    for row, head in product(range(0, rows, some_rows), range(0, heads, some_heads)):
        own_rows, own_heads = slice(row, row + some_rows), slice(head, head + some_heads)
        of_heads = torch.arange(heads)[own_heads, None]
        asking, asked = ((places[own_rows, None] * heads + of_heads).flatten() for places in (group.queries, group.keys))
        query, key, value = (
            part.view(-1, width).index_select(0, places).view(-1, size, width)
            for part, places, size in zip(states, (asking, asked, asked), (length, keys, keys), strict=True)
        )
        shape = len(query) // len(of_heads), len(of_heads), length, keys
        scores = scratch.take("scores", shape, query.dtype).copy_(group.bias[own_rows]).flatten(0, 1)
        scores.baddbmm_(query, key.transpose(1, 2), alpha=scale)
        weights = torch.softmax(scores, -1, dtype=torch.float32, out=scratch.take("weights", scores.shape, torch.float32))
        mixed = torch.bmm(scores.copy_(weights), value)
        found[own_rows, :, own_heads] = mixed.view(-1, len(of_heads), length, width).transpose(1, 2)
    return found.flatten(0, 1)
