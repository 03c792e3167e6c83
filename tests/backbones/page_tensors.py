"""The weights of a page, read as its worker reads them, and put back into a model."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from inbedder.backbones.page_weights import PARTS


def read_tensors(shapes: Sequence[tuple[str, int, int, bool]], content: bytes) -> dict[str, Any]:
    """Read the tensors, float32, shape (rows, columns)."""
    content, tensors = gzip.decompress(content), {}
    for name, rows, columns, is_integer in shapes:
        size = rows * columns * (1 if is_integer else 4)
        values = np.frombuffer(content[:size], "i1" if is_integer else "<f4").reshape(rows, columns)
        content = content[size:]
        if is_integer:
            scales, content = np.frombuffer(content[: 4 * rows], "<f4"), content[4 * rows :]
            values = values * scales[:, None]
        tensors[name] = values
    assert not content
    return tensors


def round_model(backbone: Any, tensors: dict[str, Any], token_ids: Sequence[int]) -> None:
    """Give a model of late interaction the rounded weights of a page, and let it answer with the page's tokens only."""

    def put(module: Any, values: Any, rows: Any = slice(None)) -> None:
        with torch.no_grad():
            module.weight[rows] = torch.from_numpy(np.ascontiguousarray(values))

    lacks = torch.ones(backbone.model.config.vocab_size, dtype=torch.bool)
    lacks[list(token_ids)] = False
    backbone.model.get_output_embeddings().bias.data[lacks] = -1e9
    put(backbone.model.get_submodule("cls.predictions.transform.dense"), tensors["head"])
    for body, side in ((backbone.text_body, "text"), (backbone.body, "pair")):
        put(body.embeddings.word_embeddings, tensors["words"], list(token_ids))
        put(body.embeddings.position_embeddings, tensors["positions"], slice(len(tensors["positions"])))
        for number, block in enumerate(body.get_submodule("encoder.layer").children()):
            for part, path in PARTS.items():
                if (name := f"{number}.{part}") in tensors:
                    change = tensors[f"{name}.up"].T @ tensors[f"{name}.down"] if side == "pair" else 0
                    put(block.get_submodule(path), tensors[name] + change)
