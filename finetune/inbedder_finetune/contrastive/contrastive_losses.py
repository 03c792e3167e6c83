r"""What contrastive fine-tuning minimises (INSTRUCTOR paper, section 2.2 and appendix A).

E(I, x) is the mean of the last states over the tokens of x, of length 1; the instruction I is read and not pooled
(``instructed``). With s the cosine and t the temperature, a batch of n rows with k hard negatives each is learned by::

    L   = 1/2 (L_q + L_p)
    L_q = mean_i -log( exp(s(q_i, p_i)/t) / sum_{d in D} exp(s(q_i, d)/t) )
    L_p = mean_i -log( exp(s(q_i, p_i)/t) / sum_j exp(s(q_j, p_i)/t) )

D holds the n positives and the n*k hard negatives of the batch. This is sentence-transformers' MultipleNegativesRankingLoss in
two directions, each with its own softmax. The paper adds the directions, here they are averaged, which AdamW does not tell
apart. (The authors' code leaves the other rows' positives out of D; the paper's in-batch loss has them.)
Data-CUBE's mask (equation 9) multiplies a row's loss by alpha, 0 or 1: a row of 0 is no anchor, and its query, positive and
negatives still stand in the sums of the others. n stays the number of all rows.
``training.micro_batch`` takes the loss of a large batch with the memory of a small one (GradCache, Gao et al. 2021): the same
gradients, dropout aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def make_loss(model: Any, temperature: float, micro_batch: int | None = None) -> Any:
    """The loss of the module's text over the embeddings of query, positives and negatives.

    Args:
        model: A SentenceTransformer.
        temperature: t.
        micro_batch: Rows that are held at once; None holds all.

    Returns:
        A loss of sentence-transformers, which takes anchors as labels, or None where all rows are.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    class AnchorLoss(MultipleNegativesRankingLoss):  # type: ignore[misc]
        """The loss of a batch, of its anchors alone where labels name them."""

        def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
            if labels is not None:
                return anchors_loss(embeddings, labels, temperature)
            loss: Tensor = super().compute_loss_from_embeddings(embeddings, labels)
            return loss

    class CachedAnchorLoss(CachedMultipleNegativesRankingLoss):  # type: ignore[misc]
        """The same by GradCache."""

        def calculate_loss(
            self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
        ) -> Tensor:
            if labels is None:
                whole: Tensor = super().calculate_loss(reps, labels, with_backward=with_backward)
                return whole
            loss = anchors_loss([torch.cat(column) for column in reps], labels, temperature)
            if with_backward:
                loss.backward()
            return loss.detach() if with_backward else loss

    both: dict[str, Any] = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    settings = {"scale": 1 / temperature, "similarity_fct": cosine, **both}
    if micro_batch is None:
        return AnchorLoss(model, **settings)
    return CachedAnchorLoss(model, mini_batch_size=micro_batch, **settings)


def anchors_loss(embeddings: Sequence[Tensor], anchors: Tensor, temperature: float) -> Tensor:
    """The loss of a batch in which only anchors are learned: alpha of the module's text.

    Args:
        embeddings: Of queries, positives and negatives of n rows, each of shape (n, d).
        anchors: alpha, 1 at rows that are learned and 0 at those that are negatives alone, shape (n,).
        temperature: t.

    Returns:
        A scalar; 0 without any anchor.
    """
    queries, positives, *_ = embeddings
    own = torch.arange(len(queries), device=queries.device)
    sides = ((queries, torch.cat(list(embeddings[1:]))), (positives, queries))
    losses = [F.cross_entropy(cosine(side, others) / temperature, own, reduction="none") for side, others in sides]
    return (anchors * sum(losses) / 2).mean()


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """Cosines in float32 under autocast too: bfloat16's steps near 1 are 0.004, and the temperature makes that 0.4.

    Args:
        first: Shape (n, d).
        second: Shape (m, d).

    Returns:
        Shape (n, m).
    """
    with torch.autocast(first.device.type, enabled=False):
        first, second = (F.normalize(side.float(), dim=-1) for side in (first, second))
        return first @ second.T
