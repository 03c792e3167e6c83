"""Amortized re-encoding of the answer.

Re-encoding (InBedder paper, section 4.1, equation 2) embeds a text x under an instruction I by sampling answers and embedding
them with another encoder R: the mean of R(y) over y ~ P(y | I, x). It needs generation. The amortized form trains the model's own
vector v(I, x) towards the re-encoded reference answer e = R(y), with y from the data, so that one forward pass replaces sampling
and re-encoding. Its loss is::

    A = reencode_weight * mean_i -log( exp(cos(v_i, e_i)/t) / sum_j exp(cos(v_i, e_j)/t) )      InfoNCE
      + cosine_weight   * mean_i 1 - cos(v_i, e_i)

j runs over i and the answers of the step (of all processes and micro-batches) that differ from answer i. InstEmb (ICML 2026) is
related: it distils answers into look-ahead tokens of the prompt; here no token is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder.cache.store import Store
from inbedder.encoding.reencode import reencode
from inbedder_finetune.answering.objectives.base import Targets, VectorObjective, fit_width, gather_targets
from inbedder_finetune.recipe import NonNegativeFloat

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


@dataclass(frozen=True)
class AmortizedReencoding(VectorObjective):
    """InfoNCE and cosine distance to the answers' vectors of a frozen re-encoder."""

    reencode_weight: NonNegativeFloat = 0.0
    """Weight of InfoNCE between the pooled vector and the re-encoder's vector of the answer, with the batch's other answers as
    negatives."""
    cosine_weight: NonNegativeFloat = 0.0
    """Weight of 1 - cosine between the same vectors, without negatives."""
    reencoder: str = "all-MiniLM-L6-v2"
    """The frozen sentence-transformers model that embeds answers."""

    @property
    def is_active(self) -> bool:
        """Whether the objective has a weight."""
        return self.reencode_weight > 0 or self.cosine_weight > 0

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Embed the answers of rows with the re-encoder (``VectorObjective.make_targets``)."""
        answers: list[str] = []
        indices: list[int] = []
        for rows in splits:
            first, numbers = len(answers), dict[str, int]()
            indices += [first + numbers.setdefault(row.target_text, len(numbers)) for row in rows]
            answers += numbers
        store = None if cache is None else Store(cache)
        vectors = np.asarray(reencode([(answer,) for answer in answers], self.reencoder, store=store))
        return Targets(torch.from_numpy(fit_width(vectors, width)).half(), indices)

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute A of the module's equation (``VectorObjective.compute_loss``)."""
        distance = (1 - F.cosine_similarity(vectors, targets.to(vectors.dtype), dim=-1)).mean()
        contrast = compute_info_nce(vectors, targets, indices, self.temperature)
        return self.reencode_weight * contrast + self.cosine_weight * distance


def compute_info_nce(vectors: Tensor, targets: Tensor, indices: Tensor, temperature: float) -> Tensor:
    """Compute InfoNCE between each vector and its target, with the other targets of all processes as negatives.

    Args:
        vectors: v, shape (batch, d).
        targets: e, shape (batch, d), without gradients.
        indices: Index of each row's answer, shape (batch,); rows with equal indices are not each other's negatives.
        temperature: t.

    Returns:
        The mean loss, a scalar.

    Example:
        >>> vectors = torch.eye(3)
        >>> bool(compute_info_nce(vectors, vectors, torch.arange(3), temperature=0.05) < 1e-6)
        True
    """
    all_targets, all_indices, positions = gather_targets(targets, indices)
    unit = F.normalize(all_targets.float(), dim=-1)
    similarity = F.normalize(vectors.float(), dim=-1) @ unit.T / temperature
    is_excluded = indices.unsqueeze(1) == all_indices.unsqueeze(0)
    is_excluded[torch.arange(len(positions), device=positions.device), positions] = False
    return F.cross_entropy(similarity.masked_fill(is_excluded, float("-inf")), positions)
