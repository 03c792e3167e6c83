"""The weights of a model of late interaction as small integers, for a page that reads and answers by itself.

A row of a matrix becomes integers from -levels to levels and one scale. The base's matrices are written once. The model that
reads questions has the same matrices plus products of two narrow ones, the singular vectors of the difference::

    W' = W + U^T D        W: (out, in), U: (rank, out), D: (rank, in)

gzip then stores the integers in about as many bits as their distribution has. The page's worker, ``asking/worker.js``, computes
with them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from inbedder.backbones.families import load_model
from inbedder.backbones.hub import open_model
from inbedder.backbones.late_interaction import GATE
from inbedder.options import ModelOptions

LEVELS, FINE_LEVELS = 24, 96
"""Largest integer of words and adapter, and of the base's layers. With these a page stays below 25 MB."""
SMALL_MATRIX_LEVELS = 127
"""Largest integer of positions and answer head, which are small."""
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mix": "attention.output.dense",
    "mixed": "attention.output.LayerNorm",
    "expand": "intermediate.dense",
    "contract": "output.dense",
    "done": "output.LayerNorm",
}
"""The modules of a block by the names that the worker uses."""
MIN_SINGULAR_VALUE = 1e-4
"""Smallest singular value of a difference that is no rounding error, relative to the largest."""


class PageTensor(NamedTuple):
    """A matrix of integers with a scale per row, or a vector of numbers, which has one row and no levels."""

    name: str
    weight: Tensor
    levels: int | None


def make_page_weights(
    options: ModelOptions, token_ids: Sequence[int], num_positions: int
) -> tuple[list[tuple[str, int, int, bool]], bytes]:
    """Make the weights of a page.

    Args:
        options: A model of late interaction without a language filter.
        token_ids: The tokens that the page keeps, v ids.
        num_positions: Number of positions that the page keeps.

    Returns:
        For each tensor name, rows, columns and whether it is integers; and all values in this order, compressed: int8 rows
        followed by float32 scales, or float32 values.
    """
    options = replace(options, dtype="float32", device="cpu", quantization=None)
    loaded = load_model(open_model(options.model, options.revision), options, reads_own=True)
    assert loaded.text_reader is not None  # it has late interaction
    shapes: list[tuple[str, int, int, bool]] = []
    parts: list[Any] = []
    for name, weight, levels in _list_tensors(loaded.text_reader.model, loaded.model, torch.tensor(token_ids), num_positions):
        values = weight.detach()
        shapes.append((name, len(values), values.shape[1], levels is not None))
        parts.extend([values.numpy().astype("<f4")] if levels is None else _round_rows(values, levels))
    return shapes, gzip.compress(b"".join(part.tobytes() for part in parts), 9, mtime=0)


def _round_rows(values: Tensor, levels: int) -> list[Any]:
    """Round the rows of a matrix to integers: int8, shape (rows, columns), and scales, float32, shape (rows,)."""
    scales = (values.abs().amax(1) / levels).clamp(min=1e-12)
    return [(values / scales[:, None]).round().numpy().astype(np.int8), scales.numpy().astype("<f4")]


def _list_tensors(text_model: Any, model: Any, token_ids: Tensor, num_positions: int) -> Iterator[PageTensor]:
    """List the tensors of a model: what both sides share, what each side has, and the answer head."""
    words = text_model.get_input_embeddings().weight
    embeddings, predictions = text_model.base_model.embeddings, model.get_submodule("cls.predictions")
    yield PageTensor("words", words[token_ids], LEVELS)
    yield PageTensor("positions", embeddings.position_embeddings.weight[:num_positions], SMALL_MATRIX_LEVELS)
    yield PageTensor("head", predictions.get_submodule("transform.dense").weight, SMALL_MATRIX_LEVELS)
    yield PageTensor("head.bias", predictions.get_submodule("transform.dense").bias[None], None)
    yield from _list_norm("head.norm", predictions.get_submodule("transform.LayerNorm"))
    yield PageTensor("words.bias", predictions.bias[token_ids][None], None)
    gate = getattr(model, GATE)
    yield PageTensor("gate", torch.cat([gate.weight[0], gate.bias])[None], None)
    for side, body, token_type in (("text", text_model.base_model, 0), ("pair", model.base_model, 1)):
        yield PageTensor(f"{side}.type", body.embeddings.token_type_embeddings.weight[token_type][None], None)
        yield from _list_norm(f"{side}.norm", body.embeddings.LayerNorm)
    blocks = [body.get_submodule("encoder.layer").children() for body in (text_model.base_model, model.base_model)]
    for number, (text_block, pair_block) in enumerate(zip(*blocks, strict=True)):
        for part, path in PARTS.items():
            layer, adapted = text_block.get_submodule(path), pair_block.get_submodule(path)
            if isinstance(layer, nn.LayerNorm):
                yield from _list_norm(f"text.{number}.{part}", layer)
                yield from _list_norm(f"pair.{number}.{part}", adapted)
                continue
            yield PageTensor(f"{number}.{part}", layer.weight, FINE_LEVELS)
            up, down = _factorize(adapted.weight - layer.weight)
            yield PageTensor(f"{number}.{part}.up", up, LEVELS)
            yield PageTensor(f"{number}.{part}.down", down, LEVELS)
            yield PageTensor(f"text.{number}.{part}.bias", layer.bias[None], None)
            yield PageTensor(f"pair.{number}.{part}.bias", adapted.bias[None], None)


def _list_norm(name: str, norm: Any) -> Iterator[PageTensor]:
    yield PageTensor(f"{name}.weight", norm.weight[None], None)
    yield PageTensor(f"{name}.bias", norm.bias[None], None)


def _factorize(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Factorize a difference of weights, (out, in), into U, (rank, out), and D, (rank, in)."""
    u, values, v = torch.linalg.svd(difference, full_matrices=False)
    rank = max(1, int((values > MIN_SINGULAR_VALUE * values[0]).sum()))
    roots = values[:rank].sqrt()
    return (u[:, :rank] * roots).T, v[:rank] * roots[:, None]
