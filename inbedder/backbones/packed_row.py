"""A batch in one row without padding: each text and each question once, and the masks of each pair, which attend to both.

Most of a model's work is done token by token, so none of it is spent on padding. Groups define which tokens attend to each other
(``packed_attention.attend``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HIDDEN_BIAS = -1e4
"""Added to the score of a hidden token: its exponential is 0 in every dtype."""
ROW_MULTIPLE, MIN_ALIGNED_LENGTH = 16, 128
"""A CPU is faster if a row of at least ``MIN_ALIGNED_LENGTH`` scores has a length that is a multiple of ``ROW_MULTIPLE``."""
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class PromptParts:
    """The two parts of a prompt."""

    text: Ids
    """Token ids of the text, special tokens included."""
    question: Ids
    """Token ids of the instruction, special tokens included."""


def split_prompt(ids: Ids, question: int, response: int, after: Ids) -> PromptParts:
    """Split a prompt at the starts of its question and of its masks; the closing special tokens ``after`` end both parts."""
    return PromptParts(np.concatenate([ids[:question], after]), np.concatenate([ids[question:response], after]))


@dataclass(frozen=True)
class Group:
    """Rows of tokens that attend to each other."""

    queries: Tensor
    """Positions of the queries in the packed row (in ``PackedBatch.mask_inputs``: among the masks), shape (rows, L)."""
    keys: Tensor
    """Positions of their keys, shape (rows, K)."""
    bias: Tensor
    """0 for a visible key, else ``HIDDEN_BIAS``, shape (rows, 1, 1, K)."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch in one row: texts, then the masks pair by pair, then questions."""

    inputs: dict[str, Any]
    """The model's inputs: input_ids, position_ids and token_type_ids, shape (1, tokens), and those of ``attend``."""
    is_mask: Tensor
    """Which tokens are masks, bool, shape (1, tokens)."""
    mask_inputs: dict[str, Any]
    """The inputs of ``attend`` if the masks are the only queries."""


def pack(
    pairs: Sequence[PromptParts], masks: int, mask_id: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> PackedBatch:
    """Lay a batch in one row: each text once, the masks of each pair, each question once.

    Args:
        pairs: The parts of each prompt.
        masks: Number of masks per prompt.
        mask_id: The mask's token id.
        device: The model's device.
        dtype: The model's dtype.

    Returns:
        The packed batch.
    """
    texts: dict[bytes, int] = {}
    questions: dict[bytes, int] = {}
    text_of_pair = np.array([texts.setdefault(pair.text.tobytes(), len(texts)) for pair in pairs])
    question_of_pair = np.array([questions.setdefault(pair.question.tobytes(), len(questions)) for pair in pairs])
    text_ids, question_ids = ([np.frombuffer(key, dtype=np.int32) for key in sequences] for sequences in (texts, questions))
    text_lengths, question_lengths = (np.array([len(ids) for ids in sequences]) for sequences in (text_ids, question_ids))
    first, count = int(text_lengths.sum()), masks * len(pairs)

    text_positions, in_text = _lay_out_rows(0, text_lengths)
    question_positions, in_question = _lay_out_rows(first + count, question_lengths)
    answers = np.arange(count).reshape(-1, masks)
    longest, most_words = text_lengths.max(), question_lengths.max()
    keys = np.concatenate(
        [first + answers, question_positions[question_of_pair, :most_words], text_positions[text_of_pair]], axis=1
    )
    is_visible = np.concatenate(
        [np.ones_like(answers, dtype=bool), in_question[question_of_pair, :most_words], in_text[text_of_pair]], axis=1
    )
    target = device, dtype
    groups = [
        _make_group(text_positions[:, :longest], text_positions, in_text, *target),
        _make_group(first + answers, keys, is_visible, *target),
        _make_group(question_positions[:, :most_words], question_positions, in_question, *target),
    ]
    ends = np.cumsum([group.queries.numel() for group in groups])
    token_rows = np.concatenate(
        [
            np.flatnonzero(in_text[:, :longest]),
            ends[0] + np.arange(count),
            ends[1] + np.flatnonzero(in_question[:, :most_words]),
        ]
    )
    columns = {
        "input_ids": np.concatenate([*text_ids, np.full(count, mask_id), *question_ids]),
        "position_ids": np.concatenate(
            [
                *(np.arange(length) for length in text_lengths),
                (question_lengths[question_of_pair, None] + np.arange(masks)).flatten(),
                *(np.arange(length) for length in question_lengths),
            ]
        ),
        "token_type_ids": np.arange(len(token_rows)) >= first,
    }
    inputs: dict[str, Any] = {
        name: torch.from_numpy(column.astype(np.int64))[None].to(device) for name, column in columns.items()
    }
    inputs |= {
        "attention_mask": torch.ones(1, 1, 1, 1, device=device),
        "groups": groups,
        "token_rows": torch.from_numpy(token_rows).to(device),
    }
    is_mask = (np.arange(len(token_rows)) >= first) & (np.arange(len(token_rows)) < first + count)
    mask_inputs = {"groups": [_make_group(answers, keys, is_visible, *target)], "token_rows": torch.arange(count, device=device)}
    return PackedBatch(inputs, torch.from_numpy(is_mask)[None].to(device), mask_inputs)


def _lay_out_rows(first: int, lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lay out consecutive sequences, the first at position ``first``, in one row each.

    Returns the tokens' positions and which of them exist, shape (sequences, longest), rounded up to ``ROW_MULTIPLE`` if long.
    """
    count = int(lengths.max())
    if count >= MIN_ALIGNED_LENGTH:
        count += -count % ROW_MULTIPLE
    slots, starts = np.arange(count), first + np.cumsum(lengths) - lengths
    inside = slots < lengths[:, None]
    return np.where(inside, starts[:, None] + slots, 0), inside


def _make_group(
    queries: NDArray[np.int64], keys: NDArray[np.int64], is_visible: NDArray[np.bool_], device: torch.device, dtype: torch.dtype
) -> Group:
    bias = torch.zeros(is_visible.shape, dtype=dtype).masked_fill_(~torch.from_numpy(is_visible), HIDDEN_BIAS)[:, None, None]
    return Group(torch.from_numpy(queries.copy()).to(device), torch.from_numpy(keys).to(device), bias.to(device))
