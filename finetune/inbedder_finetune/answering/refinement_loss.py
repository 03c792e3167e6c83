"""The vector loss of soft tokens: each soft token refines the vector of those before it (GIRCSE, arXiv 2509.24291).

After k soft tokens the vector is the mean of their k states, with the loss L_k. The loss of a step is::

    mean_k L_k + mean_k max(0, log L_{k+1} - log L_k)

The second term, whose weight is 1 as in the authors' code, demands that a further token lowers the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from inbedder_finetune.answering.objectives import compute_vector_loss
from inbedder_finetune.answering.objectives.base import VectorObjective

MIN_LOSS = 1e-8
"""Added to a loss before its logarithm, as in the authors' code."""


def compute_refinement_loss(objectives: Sequence[VectorObjective], vectors: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Compute the sum of vector objectives, over all soft tokens if there are any.

    Args:
        objectives: The active objectives.
        vectors: v, shape (batch, d), or after each soft token, shape (batch, K, d).
        batch: The targets, as for ``compute_vector_loss``.

    Returns:
        A scalar.
    """
    if vectors.ndim == 2:
        return compute_vector_loss(objectives, vectors, batch)
    losses = torch.stack([compute_vector_loss(objectives, step_vectors, batch) for step_vectors in vectors.unbind(1)])
    increases = F.relu((losses + MIN_LOSS).log().diff())
    return losses.mean() + increases.sum() / max(len(increases), 1)
