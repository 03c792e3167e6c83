"""Packing of several questions about one text into one sequence, so that the text is read once.

The paper's template puts the text first, so the prompts of one text share a prefix, found by comparing their ids. A pack is that
prefix followed by the remaining tokens of each example. A position attends to the prefix and to earlier positions of its own
example, and has the position id it has in its example. The states of each example therefore equal those of a separate pass.
Several packs share a row of the batch as long as the row is no longer than the longest pack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inbedder.prompting.tokenization import count_common_ids
from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator, Example

SHARED_OWNER = -1
"""Owner of positions in the shared prefix."""


@dataclass(frozen=True)
class Pack:
    """Examples about one text behind their shared prefix."""

    ids: np.ndarray[Any, Any]
    """Token ids, shape (positions,)."""
    labels: np.ndarray[Any, Any]
    """Labels, shape (positions,); ``IGNORE_INDEX`` where there is no loss."""
    owner: np.ndarray[Any, Any]
    """Number of each position's example, shape (positions,); ``SHARED_OWNER`` in the prefix."""
    positions: np.ndarray[Any, Any]
    """Position id of each token in its own example, shape (positions,)."""


def pack(examples: Sequence[Example], numbers: Sequence[int]) -> Pack:
    """Pack examples about one text.

    Args:
        examples: Causal examples with input_ids and labels.
        numbers: Number of each example.

    Returns:
        The pack; a single example is returned as it is.
    """
    rows = [np.asarray(example["input_ids"]) for example in examples]
    labels = [np.asarray(example["labels"]) for example in examples]
    first = min(int(np.argmax(label != IGNORE_INDEX)) for label in labels)  # the state that predicts it must not be shared
    shared = min(count_common_ids(rows), first - 1) if len(rows) > 1 else 0
    parts = [row[shared:] for row in rows]
    return Pack(
        np.concatenate([rows[0][:shared], *parts]),
        np.concatenate([labels[0][:shared], *(label[shared:] for label in labels)]),
        np.concatenate([np.full(shared, SHARED_OWNER), *(np.full(len(p), n) for p, n in zip(parts, numbers, strict=True))]),
        np.concatenate([np.arange(shared), *(np.arange(shared, len(row)) for row in rows)]),
    )


def group_by_text(examples: Sequence[Example]) -> list[list[int]]:
    """Group the indices of examples by text."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        groups[int(example["text"])].append(number)
    return list(groups.values())


def arrange_packs(lengths: Sequence[int]) -> list[list[int]]:
    """Assign packs to rows as long as the longest pack, by first fit, the longest pack first."""
    longest = max(lengths)
    rows: list[list[int]] = []
    free_positions: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((row for row, free in enumerate(free_positions) if free >= lengths[number]), None)
        if row is None:
            rows.append([])
            free_positions.append(longest)
            row = len(rows) - 1
        rows[row].append(number)
        free_positions[row] -= lengths[number]
    return rows


def make_packed_batch(examples: Sequence[Example], pad_id: int) -> dict[str, Tensor]:
    """Make a batch in which each text is read once.

    Args:
        examples: Causal examples with the id of their text.
        pad_id: Id of the padding token.

    Returns:
        input_ids, labels, position_ids and owner (the example of each position), shape (rows, positions); attention_mask, bool,
        shape (rows, 1, positions, positions).
    """
    packs = [pack([examples[number] for number in members], members) for members in group_by_text(examples)]
    rows = arrange_packs([len(pack.ids) for pack in packs])
    length = max(len(pack.ids) for pack in packs)
    fill_values = (pad_id, IGNORE_INDEX, 0, SHARED_OWNER, SHARED_OWNER)
    ids, labels, positions, owner, pack_numbers = (torch.full((len(rows), length), value) for value in fill_values)
    for row, numbers in enumerate(rows):
        start = 0
        for number in numbers:
            span = slice(start, start + len(packs[number].ids))
            for column, name in ((ids, "ids"), (labels, "labels"), (positions, "positions"), (owner, "owner")):
                column[row, span] = torch.from_numpy(getattr(packs[number], name).astype(np.int64))
            pack_numbers[row, span] = number
            start = span.stop
    same_pack = pack_numbers.unsqueeze(2) == pack_numbers.unsqueeze(1)
    same_example = (owner.unsqueeze(1) == SHARED_OWNER) | (owner.unsqueeze(2) == owner.unsqueeze(1))
    attention = (same_pack & same_example).tril().unsqueeze(1)  # padding attends to padding: no row of a softmax is empty
    return {"input_ids": ids, "labels": labels, "position_ids": positions, "owner": owner, "attention_mask": attention}


class PackingCollator(Collator):
    """Collator that packs the examples of each text."""

    def pad_examples(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Pack and pad examples with ``make_packed_batch``."""
        return make_packed_batch(examples, self.pad_id)
