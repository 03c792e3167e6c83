"""Several questions over one text in one pass: the text is read once, each question and its answer behind it.

The paper's pattern puts the text first, so the prompts of one text share their beginning (read off their ids, never assumed). A
pack is that beginning followed by what is left of each example. A position sees the beginning and what stands before it in its
own example, and is numbered as if its example stood alone: each example's states equal those of a pass of its own. Several packs
share a row as long as they are no longer than the longest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inbedder.prompting.tokenization import common_length
from inbedder_finetune.answering.examples import IGNORED, Collator, Example

NOBODY = -1


@dataclass(frozen=True)
class Pack:
    """Examples about one text, laid behind what they share."""

    ids: np.ndarray[Any, Any]
    """Token ids, shape (positions,)."""
    labels: np.ndarray[Any, Any]
    """What carries the loss, else ``IGNORED``."""
    owner: np.ndarray[Any, Any]
    """The example of each position; ``NOBODY`` for what is shared."""
    places: np.ndarray[Any, Any]
    """Position of each token in its own example."""


def pack(examples: Sequence[Example], numbers: Sequence[int]) -> Pack:
    """Lay examples about one text behind what they share.

    Args:
        examples: Causal examples: input_ids and labels.
        numbers: What to call each of them.

    Returns:
        The pack; of one example, that example.
    """
    rows = [np.asarray(example["input_ids"]) for example in examples]
    labels = [np.asarray(example["labels"]) for example in examples]
    first = min(int(np.argmax(label != IGNORED)) for label in labels)  # the state that predicts it is an example's own
    shared = min(common_length(rows), first - 1) if len(rows) > 1 else 0
    parts = [row[shared:] for row in rows]
    return Pack(
        np.concatenate([rows[0][:shared], *parts]),
        np.concatenate([labels[0][:shared], *(label[shared:] for label in labels)]),
        np.concatenate([np.full(shared, NOBODY), *(np.full(len(p), n) for p, n in zip(parts, numbers, strict=True))]),
        np.concatenate([np.arange(shared), *(np.arange(shared, len(row)) for row in rows)]),
    )


def by_text(examples: Sequence[Example]) -> list[list[int]]:
    """Numbers of the examples about each text."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        found[int(example["text"])].append(number)
    return list(found.values())


def in_rows(lengths: Sequence[int]) -> list[list[int]]:
    """Packs put into rows no longer than the longest (first fit, the longest first)."""
    longest = max(lengths)
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        fitting = next((row for row, left in enumerate(room) if left >= lengths[number]), None)
        if fitting is None:
            rows.append([])
            room.append(longest)
            fitting = len(rows) - 1
        rows[fitting].append(number)
        room[fitting] -= lengths[number]
    return rows


def packed_batch(examples: Sequence[Example], pad_id: int) -> dict[str, Tensor]:
    """A batch whose texts are read once.

    Args:
        examples: Causal examples with the number of their text.
        pad_id: Id of padding.

    Returns:
        input_ids, labels, position_ids and owner (the example of each position), shape (rows, positions); attention_mask, bool,
        shape (rows, 1, positions, positions).
    """
    packs = [pack([examples[number] for number in members], members) for members in by_text(examples)]
    rows = in_rows([len(pack.ids) for pack in packs])
    length = max(len(pack.ids) for pack in packs)
    ids, labels, places, owner, which = (torch.full((len(rows), length), value) for value in (pad_id, IGNORED, 0, NOBODY, NOBODY))
    for row, numbers in enumerate(rows):
        start = 0
        for number in numbers:
            span = slice(start, start + len(packs[number].ids))
            for whole, part in ((ids, "ids"), (labels, "labels"), (places, "places"), (owner, "owner")):
                whole[row, span] = torch.from_numpy(getattr(packs[number], part).astype(np.int64))
            which[row, span] = number
            start = span.stop
    same_pack = which.unsqueeze(2) == which.unsqueeze(1)
    seen = (owner.unsqueeze(1) == NOBODY) | (owner.unsqueeze(2) == owner.unsqueeze(1))
    attention = (same_pack & seen).tril().unsqueeze(1)  # padding sees padding: no row of a softmax is empty
    return {"input_ids": ids, "labels": labels, "position_ids": places, "owner": owner, "attention_mask": attention}


class PackingCollator(Collator):
    """Reads the texts of a batch once."""

    def padded(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """``packed_batch`` of the examples."""
        return packed_batch(examples, self.pad_id)
