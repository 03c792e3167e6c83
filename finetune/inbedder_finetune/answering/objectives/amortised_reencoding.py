"""The amortised re-encoding of the answer.

Re-encoding (InBedder paper, section 4.1, equation 2) embeds a text x under an instruction I by sampling answers and embedding
them with another encoder R: the mean of R(y) over y ~ P(y | I, x). That costs generation. Its amortised form trains the
model's own vector v(I, x) towards the re-encoded reference answer e = R(y), y from the data, so that one forward pass gives
what sampling and re-encoding would. Its loss, times ``reencode_weight``, is::

    A = mean_i -log( exp(cos(v_i, e_i)/t) / sum_j exp(cos(v_i, e_j)/t) )      "info_nce"
    A = mean_i 1 - cos(v_i, e_i)                                                "cosine"

``cosine_weight`` adds some of the second to the first. j runs over i and the answers of the step (of all processes and
micro-batches) that differ from answer i. A near neighbour is InstEmb (ICML 2026), which distils answers into look-ahead tokens
of the prompt; here no token is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder.cache.store import Store
from inbedder.encoding.reencode import reencode
from inbedder_finetune.answering.objectives.base import Targets, VectorObjective, fit_width, gather_targets
from inbedder_finetune.recipe import AtLeast0

if TYPE_CHECKING:
    from inbedder_finetune.answering.training_row import Row


@dataclass(frozen=True)
class AmortisedReencoding(VectorObjective):
    """InfoNCE or cosine distance to a frozen re-encoder's vectors of the answers."""

    reencode_weight: AtLeast0 = 0.0
    """Weight of the amortised re-encoding: the pooled vector is trained towards the re-encoder's vector of the answer."""
    reencode_loss: Literal["info_nce", "cosine"] = "info_nce"
    """info_nce (apart from the batch's other answers) or "cosine" (the answer only)."""
    alike: float = 1.0
    """Answers of another row whose vectors have at least this cosine with a row's own are not its negatives (InfoNCE)."""
    cosine_weight: AtLeast0 = 0.0
    """How much of 1 - cosine is added to InfoNCE."""
    reencoder: str = "all-MiniLM-L6-v2"
    """The frozen sentence-transformers model that embeds answers."""

    @property
    def is_active(self) -> bool:
        """Whether it has a weight."""
        return self.reencode_weight > 0

    def make_targets(self, splits: Sequence[Sequence[Row]], width: int, cache: str | None) -> Targets:
        """Embed the answers of rows; see ``VectorObjective.make_targets``."""
        answers: list[tuple[str, ...]] = []
        indices: list[int] = []
        for rows in splits:
            first, numbers = len(answers), dict[tuple[str, ...], int]()
            indices += [first + numbers.setdefault(row.drawn_to, len(numbers)) for row in rows]
            answers += numbers
        store = None if cache is None else Store(Path(cache).expanduser())
        vectors = np.asarray(reencode(answers, self.reencoder, store=store))
        return Targets(torch.from_numpy(fit_width(vectors, width)).half(), indices)

    def compute_loss(self, vectors: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Compute A of the module's text; see ``VectorObjective.compute_loss``."""
        distance = (1 - F.cosine_similarity(vectors, targets.to(vectors.dtype), dim=-1)).mean()
        if self.reencode_loss == "cosine":
            return self.reencode_weight * distance
        contrast = compute_info_nce(vectors, targets, indices, self.temperature, self.alike)
        return self.reencode_weight * (contrast + self.cosine_weight * distance)


def compute_info_nce(vectors: Tensor, targets: Tensor, indices: Tensor, temperature: float, alike: float = 1.0) -> Tensor:
    """Compute InfoNCE of each vector to its own target among the other targets of all processes.

    Args:
        vectors: v, shape (batch, d).
        targets: e, shape (batch, d); they carry no gradient.
        indices: Shape (batch,); equal indices are the same answer and never each other's negative.
        temperature: t.
        alike: Targets with at least this cosine to a row's own are not its negatives either; 1 keeps all that differ.

    Returns:
        The mean loss, a scalar.
    """
    all_targets, all_indices, positions = gather_targets(targets, indices)
    unit = F.normalize(all_targets.float(), dim=-1)
    similarity = F.normalize(vectors.float(), dim=-1) @ unit.T / temperature
    same = indices.unsqueeze(1) == all_indices.unsqueeze(0)
    if alike < 1:
        same |= unit[positions] @ unit.T >= alike
    same[torch.arange(len(positions), device=positions.device), positions] = False
    return F.cross_entropy(similarity.masked_fill(same, float("-inf")), positions)
