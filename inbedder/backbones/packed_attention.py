"""Attention of a packed row (``packed_row``): each group of tokens is gathered, attends, and returns to its positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from inbedder.backbones.packed_row import Group

MAX_SCORES = 3 * 2**18
"""Maximum number of attention scores in memory at once on a CPU."""


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    groups: Sequence[Group] | None = None,
    token_rows: Tensor | None = None,
    scratch: Scratch | None = None,
    text_states: TextStates | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within the groups of a packed row, or as torch does in any other batch.

    Args:
        module: The layer's attention.
        query: Shape (1, heads, tokens, width), or (batch, ...) in other batches.
        key: The same shape.
        value: The same shape.
        attention_mask: The mask of other batches.
        groups: The groups of tokens that attend to each other.
        token_rows: For each token, its row in the concatenated groups.
        scratch: Reused memory, for a pass on a CPU without gradients.
        text_states: Keys and values of the texts, which the row of texts stores and the row of pairs attends to.
        **options: scaling and dropout.

    Returns:
        The attention's output, shape (1, tokens, heads, width), and None for its weights.
    """
    if groups is None or token_rows is None:
        dropout, scale = options.get("dropout", 0.0), options.get("scaling")
        output = scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scale)
        return output.transpose(1, 2).contiguous(), None
    flat = [states[0].transpose(0, 1) for states in (query, key, value)]
    if text_states is not None:
        flat[1:] = text_states.update(flat[1], flat[2], module.layer_idx)
    scale_and_dropout = options.get("scaling") or query.shape[-1] ** -0.5, options.get("dropout", 0.0)
    rows = []
    for group in groups:
        if scratch is not None:
            rows.append(_attend_in_parts(flat, group, scale_and_dropout[0], scratch))
            continue
        q, k, v = (
            states.index_select(0, positions.flatten()).view(*positions.shape, *states.shape[1:]).transpose(1, 2)
            for states, positions in zip(flat, (group.queries, group.keys, group.keys), strict=True)
        )
        rows.append(_attend_group(q, k, v, group.bias.to(q.dtype), *scale_and_dropout).transpose(1, 2).flatten(0, 1))
    return torch.cat(rows).index_select(0, token_rows)[None], None


def _attend_group(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, dropout: float) -> Tensor:
    """Attend with gradients or on a GPU; on a CPU without torch's fused attention, whose backward pass is slow."""
    rows, heads, length, width = query.shape
    keys = key.shape[2]
    if query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    matrices = rows * heads
    bias = bias.expand(rows, heads, length, keys).reshape(matrices, length, keys)
    q, k, v = query.reshape(matrices, length, width), key.reshape(matrices, keys, width), value.reshape(matrices, keys, width)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.nn.functional.dropout(scores.softmax(-1, dtype=wide), dropout).to(v.dtype)
    return torch.bmm(weights, v).view(rows, heads, length, width)


class TextStates:
    """Keys and values of a row of texts, by layer: the pass over the texts stores them, a later pass attends to them."""

    def __init__(self) -> None:
        """Start empty."""
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Store the first keys and values of a layer, or append them to later ones; all have the shape (tokens, heads, width)."""
        if layer not in self._layers:
            self._layers[layer] = key, value
            return key, value
        text_key, text_value = self._layers[layer]
        return torch.cat([key, text_key]), torch.cat([value, text_value])


class Scratch:
    """Memory for attention scores that all layers of a pass reuse.

    Freed memory goes back to the system and returns page by page, which can take as long as the attention itself.
    """

    def __init__(self) -> None:
        """Start without memory."""
        self._memory: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Take uninitialized memory of a shape; calls with one name share it and have one dtype."""
        size = math.prod(shape)
        if name not in self._memory or len(self._memory[name]) < size:
            self._memory[name] = torch.empty(size, dtype=dtype)
        return self._memory[name][:size].view(*shape)


def _attend_in_parts(states: Sequence[Tensor], group: Group, scale: float, scratch: Scratch) -> Tensor:
    """Attend without gradients on a CPU, in parts whose scores fit its cache.

    The softmax is in float32, or float64: torch's bfloat16 softmax is slow unless the row length is a multiple of 32.

    Args:
        states: Queries, keys and values of a packed row, shape (tokens, heads, width) each.
        group: The group of tokens.
        scale: The factor of the scores.
        scratch: Memory for the scores.

    Returns:
        Shape (rows of the group * L, heads, width).
    """
    (rows, length), keys = group.queries.shape, group.keys.shape[1]
    _, heads, width = states[0].shape
    matrices_per_part = max(1, MAX_SCORES // (length * keys))
    heads_per_part, rows_per_part = min(heads, matrices_per_part), max(1, matrices_per_part // heads)
    output = torch.empty(rows, length, heads, width, dtype=states[0].dtype)
    wide = torch.promote_types(states[0].dtype, torch.float32)
    for row, head in product(range(0, rows, rows_per_part), range(0, heads, heads_per_part)):
        row_slice, head_slice = slice(row, row + rows_per_part), slice(head, head + heads_per_part)
        head_indices = torch.arange(heads)[head_slice, None]
        query_rows, key_rows = (
            (positions[row_slice, None] * heads + head_indices).flatten() for positions in (group.queries, group.keys)
        )
        query, key, value = (
            part.view(-1, width).index_select(0, positions).view(-1, size, width)
            for part, positions, size in zip(states, (query_rows, key_rows, key_rows), (length, keys, keys), strict=True)
        )
        shape = len(query) // len(head_indices), len(head_indices), length, keys
        scores = scratch.take("scores", shape, query.dtype).copy_(group.bias[row_slice]).flatten(0, 1)
        scores.baddbmm_(query, key.transpose(1, 2), alpha=scale)
        weights = torch.softmax(scores, -1, dtype=wide, out=scratch.take("weights", scores.shape, wide))
        mixed = torch.bmm(scores.copy_(weights), value)
        output[row_slice, :, head_slice] = mixed.view(-1, len(head_indices), length, width).transpose(1, 2)
    return output.flatten(0, 1)
