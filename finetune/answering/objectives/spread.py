"""Spread-out vectors: the mean squared cosine of different rows, times ``spread_weight``, as in GOR (Zhang et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from finetune.answering.objectives.base import Targets, VectorObjective
from finetune.recipe import AtLeast0

if TYPE_CHECKING:
    from finetune.answering.rows import Row


@dataclass(frozen=True)
class Spread(VectorObjective):
    """Push the vectors of a micro-batch apart."""

    spread_weight: AtLeast0 = 0.0
    """Weight of the mean squared cosine between different rows of a micro-batch."""

    @property
    def is_active(self) -> bool:
        """Whether it has a weight."""
        return self.spread_weight > 0

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Return no targets: one vector of zeros that every row names."""
        return Targets(torch.zeros(1, width, dtype=torch.float16), [0] * sum(map(len, splits)))

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute the mean squared cosine; see ``VectorObjective.compute_loss``."""
        unit = F.normalize(vectors.float(), dim=-1)
        cosines = (unit @ unit.T).fill_diagonal_(0)
        return self.spread_weight * cosines.square().sum() / max(1, len(unit) * (len(unit) - 1))
