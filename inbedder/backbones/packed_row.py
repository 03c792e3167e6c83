"""A batch in one row without padding: each text and each question once, and the masks of each pair, which read both.

Most of a model's work is done token by token, and so none of it goes into padding. Groups say which tokens attend to which
(``late_interaction.attend``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

UNSEEN = -1e4
"""What stands against attention: exp of it is 0 in every precision."""
ALIGNED, LONG = 16, 128
"""A CPU computes faster with rows of scores that are a multiple of so many long, once they are long."""
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Parts:
    """A prompt in its two parts."""

    text: Ids
    """What the model reads of the text, special tokens included."""
    question: Ids
    """The same of the instruction."""


def parts_of(ids: Ids, question: int, response: int, after: Ids) -> Parts:
    """Split a prompt at the starts of its question and of its masks; the closing special tokens ``after`` end both parts."""
    return Parts(np.concatenate([ids[:question], after]), np.concatenate([ids[question:response], after]))


@dataclass(frozen=True)
class Group:
    """Rows of tokens that attend to each other."""

    queries: Tensor
    """Places of tokens in the packed row, or among the masks where they alone look, shape (rows, L)."""
    keys: Tensor
    """Places of what they may see, shape (rows, K)."""
    bias: Tensor
    """0 for what they see, else very low, shape (rows, 1, 1, K)."""


@dataclass(frozen=True)
class Packed:
    """A batch in one row: texts, then the masks pair by pair, then questions."""

    inputs: dict[str, Any]
    """What the model takes: input_ids, position_ids and token_type_ids, shape (1, tokens), and what says who sees whom."""
    is_mask: Tensor
    """Where masks stand, bool, shape (1, tokens)."""
    of_masks: dict[str, Any]
    """What says who sees whom where the masks alone look, one after another."""


def pack(pairs: Sequence[Parts], masks: int, mask_id: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Packed:
    """Lay a batch in one row: each text once, the masks of each pair, each question once.

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
    read = np.array([texts.setdefault(pair.text.tobytes(), len(texts)) for pair in pairs])
    asked = np.array([questions.setdefault(pair.question.tobytes(), len(questions)) for pair in pairs])
    text_ids, question_ids = ([np.frombuffer(key, dtype=np.int32) for key in many] for many in (texts, questions))
    text_lengths, question_lengths = (np.array([len(ids) for ids in many]) for many in (text_ids, question_ids))
    first, count = int(text_lengths.sum()), masks * len(pairs)

    of_texts, in_texts = _rows(0, text_lengths)
    of_questions, in_questions = _rows(first + count, question_lengths)
    answers = np.arange(count).reshape(-1, masks)
    longest, most_words = text_lengths.max(), question_lengths.max()
    keys = np.concatenate([first + answers, of_questions[asked, :most_words], of_texts[read]], axis=1)
    seen = np.concatenate([np.ones_like(answers, dtype=bool), in_questions[asked, :most_words], in_texts[read]], axis=1)
    where = device, dtype
    groups = [
        _group(of_texts[:, :longest], of_texts, in_texts, *where),
        _group(first + answers, keys, seen, *where),
        _group(of_questions[:, :most_words], of_questions, in_questions, *where),
    ]
    ends = np.cumsum([group.queries.numel() for group in groups])
    back = np.concatenate(
        [
            np.flatnonzero(in_texts[:, :longest]),
            ends[0] + np.arange(count),
            ends[1] + np.flatnonzero(in_questions[:, :most_words]),
        ]
    )
    columns = {
        "input_ids": np.concatenate([*text_ids, np.full(count, mask_id), *question_ids]),
        "position_ids": np.concatenate(
            [
                *(np.arange(length) for length in text_lengths),
                (question_lengths[asked, None] + np.arange(masks)).flatten(),
                *(np.arange(length) for length in question_lengths),
            ]
        ),
        "token_type_ids": np.arange(len(back)) >= first,
    }
    inputs: dict[str, Any] = {
        name: torch.from_numpy(column.astype(np.int64))[None].to(device) for name, column in columns.items()
    }
    inputs |= {
        "attention_mask": torch.ones(1, 1, 1, 1, device=device),
        "groups": groups,
        "back": torch.from_numpy(back).to(device),
    }
    is_mask = (np.arange(len(back)) >= first) & (np.arange(len(back)) < first + count)
    alone = {"groups": [_group(answers, keys, seen, *where)], "back": torch.arange(count, device=device)}
    return Packed(inputs, torch.from_numpy(is_mask)[None].to(device), alone)


def _rows(first: int, lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lay sequences that follow one another from ``first`` on in rows of their own.

    Returns their tokens' places and which of these exist, shape (sequences, longest, rounded up to ``ALIGNED`` where long).
    """
    count = int(lengths.max())
    if count >= LONG:
        count += -count % ALIGNED
    slots, starts = np.arange(count), first + np.cumsum(lengths) - lengths
    inside = slots < lengths[:, None]
    return np.where(inside, starts[:, None] + slots, 0), inside


def _group(
    queries: NDArray[np.int64], keys: NDArray[np.int64], seen: NDArray[np.bool_], device: torch.device, dtype: torch.dtype
) -> Group:
    bias = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~torch.from_numpy(seen), UNSEEN)[:, None, None]
    return Group(torch.from_numpy(queries.copy()).to(device), torch.from_numpy(keys).to(device), bias.to(device))
