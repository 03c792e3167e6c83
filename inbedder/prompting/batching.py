"""Batches of similar length under a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TOKEN_BUDGET = 32 * 512
"""Maximum number of padded tokens in one batch on a GPU."""
CPU_TOKEN_BUDGET = TOKEN_BUDGET // 8
"""The same on a CPU, where the states of larger batches do not fit its cache."""


def get_token_budget(device: torch.device) -> int:
    """Return the maximum number of padded tokens in one batch on a device: ``CPU_TOKEN_BUDGET`` or ``TOKEN_BUDGET``."""
    return CPU_TOKEN_BUDGET if device.type == "cpu" else TOKEN_BUDGET


def split_into_batches(lengths: Sequence[int], batch_size: int, max_tokens: int = TOKEN_BUDGET) -> Iterator[NDArray[np.intp]]:
    """Yield row numbers of batches of similar length, the longest first; ``max_tokens`` bounds rows times longest row."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        rows = max(1, min(batch_size, max_tokens // longest))
        yield order[start : start + rows]
        start += rows


def pad(rows: Sequence[NDArray[np.int32]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Pad rows of ids on a side; return ids (int64) and attention mask (bool), both of shape (batch, longest row)."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.bool)
    for i, row in enumerate(rows):
        columns = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        ids[i, columns] = torch.from_numpy(row.astype(np.int64))
        mask[i, columns] = True
    return ids, mask
