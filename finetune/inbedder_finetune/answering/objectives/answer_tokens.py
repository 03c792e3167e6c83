"""Cross-entropy of the answer's tokens: ``token_weight`` * CE(y | I, x)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from inbedder_finetune.answering.objectives.base import TokenObjective
from inbedder_finetune.recipe import NonNegativeFloat


@dataclass(frozen=True)
class AnswerTokens(TokenObjective):
    """The language-modelling loss of the answer tokens."""

    token_weight: NonNegativeFloat = 1.0
    """Weight of the cross-entropy of the answer tokens."""

    @property
    def is_active(self) -> bool:
        """Whether the objective has a weight."""
        return self.token_weight > 0

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute the weighted sum over tokens."""
        return self.token_weight * F.cross_entropy(logits.float(), labels, reduction="sum")
