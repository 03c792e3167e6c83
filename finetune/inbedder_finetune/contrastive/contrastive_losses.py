r"""Contrastive loss (INSTRUCTOR paper, section 2.2 and appendix A).

E(I, x) is the normalized mean of the last states over the tokens of x; the instruction I is read but not pooled
(``instructed_texts``). With the cosine s and the temperature t, the loss of a batch of n rows with k hard negatives each is::

    L   = 1/2 (L_q + L_p)
    L_q = mean_i -log( exp(s(q_i, p_i)/t) / sum_{d in D} exp(s(q_i, d)/t) )
    L_p = mean_i -log( exp(s(q_i, p_i)/t) / sum_j exp(s(q_j, p_i)/t) )

D holds the n positives and the n*k hard negatives of the batch. This is sentence-transformers' MultipleNegativesRankingLoss in
two directions, each with its own softmax. The paper adds the directions; here they are averaged, which makes no difference to
AdamW. (The authors' code leaves the other rows' positives out of D; the paper's in-batch loss includes them.)

Data-CUBE's mask (equation 9) multiplies the loss of a row by alpha, 0 or 1. A row with alpha 0 is not an anchor, but its query,
positive and negatives remain in the sums of the other rows. n is still the number of all rows.

``training.micro_batch`` computes the loss of a large batch in the memory of a small one (GradCache, Gao et al. 2021), with the
same gradients except for dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def make_loss(model: Any, temperature: float, micro_batch: int | None = None) -> Any:
    """Make the loss of the module's equations over the embeddings of queries, positives and negatives.

    Args:
        model: A SentenceTransformer.
        temperature: t.
        micro_batch: Rows per forward pass; None takes all rows of the batch.

    Returns:
        A sentence-transformers loss; its labels are alpha, or None when all rows are anchors.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    class AnchorLoss(MultipleNegativesRankingLoss):  # type: ignore[misc]
        """The loss of a batch, restricted to its anchors when there are labels."""

        def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
            if labels is not None:
                return compute_anchor_loss(embeddings, labels, temperature)
            loss: Tensor = super().compute_loss_from_embeddings(embeddings, labels)
            return loss

    class CachedAnchorLoss(CachedMultipleNegativesRankingLoss):  # type: ignore[misc]
        """The same loss, computed by GradCache."""

        def calculate_loss(
            self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
        ) -> Tensor:
            if labels is None:
                full_loss: Tensor = super().calculate_loss(reps, labels, with_backward=with_backward)
                return full_loss
            loss = compute_anchor_loss([torch.cat(column) for column in reps], labels, temperature)
            if with_backward:
                loss.backward()
            return loss.detach() if with_backward else loss

    directions: dict[str, Any] = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    settings = {"scale": 1 / temperature, "similarity_fct": compute_cosines, **directions}
    if micro_batch is None:
        return AnchorLoss(model, **settings)
    return CachedAnchorLoss(model, mini_batch_size=micro_batch, **settings)


def compute_anchor_loss(embeddings: Sequence[Tensor], anchors: Tensor, temperature: float) -> Tensor:
    """Compute the loss of a batch in which only anchors are trained.

    Args:
        embeddings: Embeddings of queries, positives and negatives of n rows, each of shape (n, d).
        anchors: alpha, 1 for anchors and 0 for rows that are only negatives, shape (n,).
        temperature: t.

    Returns:
        A scalar; 0 without anchors.
    """
    queries, positives, *_ = embeddings
    targets = torch.arange(len(queries), device=queries.device)
    pairs = ((queries, torch.cat(list(embeddings[1:]))), (positives, queries))
    losses = [F.cross_entropy(compute_cosines(first, second) / temperature, targets, reduction="none") for first, second in pairs]
    return (anchors * sum(losses) / 2).mean()


def compute_cosines(first: Tensor, second: Tensor) -> Tensor:
    """Compute cosines in float32, also under autocast.

    bfloat16 has steps of 0.004 near 1, which a temperature of 0.01 turns into 0.4.

    Args:
        first: Shape (n, d).
        second: Shape (m, d).

    Returns:
        Shape (n, m).
    """
    with torch.autocast(first.device.type, enabled=False):
        first, second = (F.normalize(side.float(), dim=-1) for side in (first, second))
        return first @ second.T
