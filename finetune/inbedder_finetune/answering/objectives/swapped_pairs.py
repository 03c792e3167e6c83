"""Swapped pairs: two texts that are near under one question and apart under another.

Dual-view training (arXiv 2604.18845) shows a pair of documents under two instructions that exchange which is relevant. Here two
texts x and y of a step have rows under several questions. With s the cosine of two of their vectors, P the pairs of rows with the
same target and N those with different ones::

    W = mean over x, y, (p, n) in P x N of log(1 + exp((s_n - s_p) / t))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder_finetune.answering.objectives.base import Targets, VectorObjective
from inbedder_finetune.recipe import NonNegativeFloat

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


@dataclass(frozen=True)
class SwappedPairs(VectorObjective):
    """Logistic loss between the similarities of two texts under two questions."""

    swap_weight: NonNegativeFloat = 0.0
    """Weight of the swapped pairs."""

    @property
    def is_active(self) -> bool:
        """Whether the objective has a weight."""
        return self.swap_weight > 0

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Number the answers and the texts of rows (``VectorObjective.make_targets``): a target is the text's number."""
        texts: dict[str, int] = {}
        answers: dict[tuple[str, ...], int] = {}
        rows = [row for split in splits for row in split]
        pairs = [(texts.setdefault(row.text, len(texts)), answers.setdefault(row.target_texts, len(answers))) for row in rows]
        distinct: dict[tuple[int, int], int] = {}
        indices = [distinct.setdefault(pair, len(distinct)) for pair in pairs]
        return Targets(torch.tensor(list(distinct), dtype=torch.float64), indices)

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute W of the module's equation, times its weight (``VectorObjective.compute_loss``)."""
        texts, answers = targets[:, 0], targets[:, 1]
        unit = F.normalize(vectors.float(), dim=-1)
        similarity = unit @ unit.T / self.temperature
        first, second = torch.triu(texts[:, None] != texts[None], 1).nonzero(as_tuple=True)
        _, pair = torch.stack([torch.minimum(texts[first], texts[second]), torch.maximum(texts[first], texts[second])]).unique(
            dim=1, return_inverse=True
        )
        same = answers[first] == answers[second]
        scores = similarity[first, second]
        positive, negative = same.nonzero()[:, 0], (~same).nonzero()[:, 0]
        matches = (pair[positive][:, None] == pair[negative][None]).nonzero(as_tuple=True)
        if not len(matches[0]):
            return vectors.new_zeros(())
        margin = scores[positive][matches[0]] - scores[negative][matches[1]]
        return self.swap_weight * F.softplus(-margin).mean()
