"""A batch in one row without padding: each text and each question once, and the masks of each pair, which read both.

Most of a model's work is done token by token, and so none of it goes into padding. Groups say which tokens attend to which
(``late_interaction.attend``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TEXT, NOBODY = -1, -2
UNSEEN = -1e4
"""What stands against attention: exp of it is 0 in every precision."""
ALIGNED, LONG = 16, 128
"""A CPU computes with rows of scores that are a multiple of so many long a quarter faster, once they are long."""
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Parts:
    """A prompt in its two parts."""

    text: Ids
    """What the model reads of the text, special tokens included."""
    question: Ids
    """The same of the instruction."""


def parts_of(ids: Ids, question: int, response: int, after: Ids) -> Parts:
    """Take a prompt apart.

    Args:
        ids: The prompt's token ids.
        question: Where the instruction begins.
        response: Where the masks begin.
        after: The special tokens that close an input; they close each part.

    Returns:
        The parts.
    """
    return Parts(np.concatenate([ids[:question], after]), np.concatenate([ids[question:response], after]))


@dataclass(frozen=True)
class Group:
    """Rows of tokens that attend to each other."""

    queries: Tensor
    """Places of tokens in the packed row, or among the masks where they alone look, shape (rows, L)."""
    keys: Tensor
    """Places of what they may see, shape (rows, K)."""
    bias: Tensor
    """0 for what they see, else very low, shape (rows, 1, L, K); padding sees something, so that no softmax is empty."""


@dataclass(frozen=True)
class Packed:
    """A batch in one row."""

    inputs: dict[str, Tensor]
    """What the model takes: input_ids, position_ids and token_type_ids, shape (1, tokens), and what says who sees whom."""
    is_mask: Tensor
    """Where masks stand, bool, shape (1, tokens)."""
    of_masks: dict[str, Any]
    """What says who sees whom where the masks alone look, one after another."""
    order: NDArray[np.intp]
    """The number of the pair that the masks belong to, pair by pair."""


def pack(pairs: Sequence[Parts], masks: int, mask_id: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Packed:
    """Lay a batch in one row: each text once, behind it the masks of its questions, at the end each question once.

    Args:
        pairs: Prompts in their parts.
        masks: How many masks stand for an answer.
        mask_id: Their token id.
        device: Where the model is.
        dtype: Its precision.

    Returns:
        The row.
    """
    texts: dict[bytes, int] = {}
    questions: dict[bytes, int] = {}
    rows = np.array([texts.setdefault(pair.text.tobytes(), len(texts)) for pair in pairs])
    asked = np.array([questions.setdefault(pair.question.tobytes(), len(questions)) for pair in pairs])
    order = np.argsort(rows, kind="stable")
    rows, asked = rows[order], asked[order]
    text_ids = [np.frombuffer(key, dtype=np.int32) for key in texts]
    question_ids = [np.frombuffer(key, dtype=np.int32) for key in questions]
    text_lengths, question_lengths = (np.array([len(ids) for ids in many]) for many in (text_ids, question_ids))
    behind = masks * np.bincount(rows)
    row_lengths = text_lengths + behind
    row_starts = np.cumsum(row_lengths) - row_lengths
    question_starts = row_lengths.sum() + np.cumsum(question_lengths) - question_lengths
    behind_ids = [np.full(count, mask_id, dtype=np.int32) for count in behind]
    ids = np.concatenate([*chain.from_iterable(zip(text_ids, behind_ids, strict=True)), *question_ids])

    slots = np.arange(row_lengths.max())
    places = np.where(slots < row_lengths[:, None], row_starts[:, None] + slots, 0)
    owners = np.where(slots < text_lengths[:, None], TEXT, (slots - text_lengths[:, None]) // masks).astype(np.int32)
    is_mask = np.zeros(len(ids), dtype=bool)
    inside = slots < row_lengths[:, None]
    is_mask[places[inside]] = owners[inside] >= 0

    positions = np.concatenate([*(np.arange(length) for length in row_lengths), *(np.arange(n) for n in question_lengths)])
    own_masks = np.tile(np.arange(masks), len(rows))
    positions[is_mask] = np.repeat(question_lengths[asked], masks) + own_masks
    types = np.concatenate([is_mask[: row_lengths.sum()], np.ones(question_lengths.sum(), dtype=bool)])

    more, more_owners = _read_by_masks(rows, question_starts[asked], question_lengths[asked], places.shape[1])
    keys = np.concatenate([places, more], axis=1)
    key_owners = np.concatenate([np.where(inside, owners, NOBODY), more_owners], axis=1)[:, None, None]
    seen = (key_owners == TEXT) | (key_owners == np.where(inside, owners, TEXT)[:, None, :, None])

    words = np.arange(question_lengths.max())
    is_word = words < question_lengths[:, None]
    alone = np.where(is_word, question_starts[:, None] + words, 0)
    groups = [
        _group(places, keys, seen, device, dtype),
        _group(alone, alone, np.repeat(is_word[:, None, None], alone.shape[1], axis=2), device, dtype),
    ]
    back = np.empty(len(ids), dtype=np.int64)
    back[places[inside]] = np.flatnonzero(inside)
    back[alone[is_word]] = places.size + np.flatnonzero(is_word)
    columns = {"input_ids": ids, "position_ids": positions, "token_type_ids": types}
    inputs: dict[str, Any] = {
        name: torch.from_numpy(column.astype(np.int64))[None].to(device) for name, column in columns.items()
    }
    inputs |= {
        "attention_mask": torch.ones(1, 1, 1, 1, device=device),
        "groups": groups,
        "back": torch.from_numpy(back).to(device),
    }
    of_masks = _looking(row_lengths, text_lengths, keys, seen, device, dtype)
    return Packed(inputs, torch.from_numpy(is_mask)[None].to(device), of_masks, order)


def _looking(
    row_lengths: NDArray[Any], text_lengths: NDArray[Any], keys: NDArray[Any], seen: NDArray[Any], *where: Any
) -> dict[str, Any]:
    """Who sees whom where the masks alone look.

    Args:
        row_lengths: Of each text with its masks.
        text_lengths: Of each text without them.
        keys: Places of what a row may see, shape (texts, K).
        seen: What each slot of a row sees, shape (texts, 1, L, K).
        *where: Device and precision of the model.

    Returns:
        The group of the masks, and where in it each mask stands.
    """
    slots = text_lengths[:, None] + np.arange((row_lengths - text_lengths).max())
    is_mask = slots < row_lengths[:, None]
    slots, numbers = np.where(is_mask, slots, 0), np.where(is_mask, is_mask.cumsum().reshape(is_mask.shape) - 1, 0)
    group = _group(numbers, keys, np.take_along_axis(seen, slots[:, None, :, None], 2), *where)
    return {"groups": [group], "back": torch.from_numpy(np.flatnonzero(is_mask)).to(where[0])}


def _read_by_masks(
    rows: NDArray[np.intp], starts: NDArray[np.intp], lengths: NDArray[np.intp], beside: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What the masks of each text read besides it: the questions of its pairs, one after another.

    Args:
        rows: The text of each pair, in order.
        starts: Where in the packed row the question of each pair begins.
        lengths: How long it is.
        beside: How many slots stand before these.

    Returns:
        Places of the questions' tokens in the packed row, and which of a text's pairs reads each, shape (texts, most tokens);
        where rows are long, some that nobody reads.
    """
    first = np.searchsorted(rows, np.arange(rows[-1] + 1))
    read, reader = _ragged(lengths)
    before = np.cumsum(lengths) - lengths
    column = before[reader] - before[first[rows[reader]]] + read
    count = int(column.max()) + 1
    if beside + count >= LONG:
        count += -(beside + count) % ALIGNED
    places = np.zeros((len(first), count), dtype=np.int64)
    readers = np.full(places.shape, NOBODY, dtype=np.int32)
    places[rows[reader], column] = starts[reader] + read
    readers[rows[reader], column] = reader - first[rows[reader]]
    return places, readers


def _ragged(lengths: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """0 .. length - 1 of each length one after another, and whose they are."""
    whose = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(whose)) - (np.cumsum(lengths) - lengths)[whose], whose


def _group(queries: NDArray[Any], keys: NDArray[Any], seen: NDArray[Any], device: torch.device, dtype: torch.dtype) -> Group:
    bias = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~torch.from_numpy(seen).to(device), UNSEEN)
    return Group(torch.from_numpy(queries).to(device), torch.from_numpy(keys).to(device), bias)
