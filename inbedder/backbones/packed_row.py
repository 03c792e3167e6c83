"""A batch in two rows without padding: each text once, then each question once and the masks of each pair.

Most of a model's work is done token by token, so none of it is spent on padding. Groups define which tokens attend to each other
(``packed_attention.attend``). The texts are read first, so their keys and values precede those of the second row.
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
    instruction: Ids
    """Token ids of the instruction, special tokens included."""


def split_prompt(ids: Ids, instruction: int, response: int, after: Ids) -> PromptParts:
    """Split a prompt at the starts of its instruction and of its masks; the closing special tokens ``after`` end both parts."""
    return PromptParts(np.concatenate([ids[:instruction], after]), np.concatenate([ids[instruction:response], after]))


@dataclass(frozen=True)
class Group:
    """Rows of tokens that attend to each other."""

    queries: Tensor
    """Positions of the queries in their row, shape (rows, L)."""
    keys: Tensor
    """Positions of their keys, shape (rows, K)."""
    bias: Tensor
    """0 for a visible key, else ``HIDDEN_BIAS``, shape (rows, 1, 1, K)."""


@dataclass(frozen=True)
class Padded:
    """Positions of tokens, padded to a matrix."""

    positions: Tensor
    """Shape (rows, tokens)."""
    exists: Tensor
    """False for padding, bool, the same shape."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch of pairs of text and question."""

    texts: dict[str, Any]
    """The model's inputs for the row of texts: input_ids, position_ids and token_type_ids, shape (1, tokens), and those of
    ``attend``."""
    pairs: dict[str, Any]
    """The same for the row of masks, pair by pair, and questions."""
    num_masks: int
    """Number of masks in the row of pairs, which come first."""
    text_tokens: Padded
    """Positions of each pair's text in the row of texts."""
    instruction_tokens: Padded
    """Positions of each pair's question in the row of pairs."""


def pack(
    pairs: Sequence[PromptParts], masks: int, mask_id: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> PackedBatch:
    """Lay a batch in two rows: each text once, and the masks of each pair before each question once."""
    text_of_pair, texts = _number_distinct([pair.text for pair in pairs])
    question_of_pair, questions = _number_distinct([pair.instruction for pair in pairs])
    count = masks * len(pairs)
    answers = np.arange(count).reshape(-1, masks)
    text_positions, in_text = _lay_out_rows(0, texts)
    question_positions, in_question = _lay_out_rows(count, questions)
    longest, most_words = (max(map(len, rows)) for rows in (texts, questions))
    question_lengths = np.array([len(question) for question in questions])
    row_length = count + int(question_lengths.sum())

    target = device, dtype
    text_tokens, instruction_tokens = (
        (positions[pair], exists[pair])
        for positions, exists, pair in (
            (text_positions, in_text, text_of_pair),
            (question_positions[:, :most_words], in_question[:, :most_words], question_of_pair),
        )
    )
    keys = np.concatenate([answers, instruction_tokens[0], row_length + text_tokens[0]], axis=1)
    is_visible = np.concatenate([np.ones_like(answers, dtype=bool), instruction_tokens[1], text_tokens[1]], axis=1)
    text_group = _make_group(text_positions[:, :longest], text_positions, in_text, *target)
    pair_groups = [
        _make_group(answers, keys, is_visible, *target),
        _make_group(question_positions[:, :most_words], question_positions, in_question, *target),
    ]
    answer_positions = (question_lengths[question_of_pair, None] + np.arange(masks)).flatten()
    return PackedBatch(
        texts=_make_inputs(
            texts, [np.arange(len(text)) for text in texts], 0, [text_group], np.flatnonzero(in_text[:, :longest]), device
        ),
        pairs=_make_inputs(
            [np.full(count, mask_id), *questions],
            [answer_positions, *(np.arange(len(question)) for question in questions)],
            1,
            pair_groups,
            np.concatenate([np.arange(count), count + np.flatnonzero(in_question[:, :most_words])]),
            device,
        ),
        num_masks=count,
        text_tokens=Padded(*(torch.from_numpy(part).to(device) for part in text_tokens)),
        instruction_tokens=Padded(*(torch.from_numpy(part).to(device) for part in instruction_tokens)),
    )


def _number_distinct(sequences: Sequence[Ids]) -> tuple[NDArray[np.int64], list[Ids]]:
    """Number the distinct sequences; returns each one's number, and the distinct ones in order."""
    numbers: dict[bytes, int] = {}
    number_of = np.array([numbers.setdefault(ids.tobytes(), len(numbers)) for ids in sequences])
    return number_of, [np.frombuffer(key, dtype=np.int32) for key in numbers]


def _make_inputs(
    sequences: Sequence[NDArray[Any]],
    positions: Sequence[NDArray[Any]],
    token_type: int,
    groups: list[Group],
    token_rows: NDArray[np.int64],
    device: torch.device,
) -> dict[str, Any]:
    """Make the model's inputs for a row."""
    columns = {"input_ids": np.concatenate(sequences), "position_ids": np.concatenate(positions)}
    columns["token_type_ids"] = np.full(len(columns["input_ids"]), token_type)
    inputs: dict[str, Any] = {
        name: torch.from_numpy(column.astype(np.int64))[None].to(device) for name, column in columns.items()
    }
    return inputs | {
        "attention_mask": torch.ones(1, 1, 1, 1, device=device),
        "groups": groups,
        "token_rows": torch.from_numpy(token_rows).to(device),
    }


def _lay_out_rows(first: int, sequences: Sequence[Ids]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lay out consecutive sequences, the first at position ``first``, in one row each.

    Returns the tokens' positions and which of them exist, shape (sequences, longest), rounded up to ``ROW_MULTIPLE`` if long.
    """
    lengths = np.array([len(ids) for ids in sequences])
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
