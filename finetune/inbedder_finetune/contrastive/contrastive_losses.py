r"""Contrastive losses (INSTRUCTOR paper, section 2.2; its published code; Data-CUBE paper, equation 3).

E(I, x) is the normalized mean of the last states over the tokens of x; the instruction I is read but not pooled
(``instructed_texts``). With the cosine s and the temperature t, a batch of n rows (q_i, p_i) has the loss::

    L   = L_q + L_p
    L_q = mean_i -log( exp(s(q_i, p_i)/t) / sum_{d in D_i} exp(s(q_i, d)/t) )
    L_p = mean_i -log( exp(s(q_i, p_i)/t) / sum_j exp(s(q_j, p_i)/t) )

``denominator`` chooses D_i. N are the hard negatives of all rows of the batch, of which MEDI has one per row:

- ``batch``: {p_1, ..., p_n} and N, as in the INSTRUCTOR paper's equation
- ``hard-negatives``: {p_i} and N, as in INSTRUCTOR's code, which leaves out the positives of the other rows
- ``negatives``: N, as in Data-CUBE's equation 3, which has no L_p; the loss can be below 0

Texts that answer a query are no negatives of it: the sums of row i leave out every text (except p_i in L_q, q_i in L_p) that
equals q_i or p_i, or that equals the query (L_p) or positive (L_q) of a row with the same query or positive. Otherwise a passage
with several questions would be a negative of its own questions.

Data-CUBE's mask (equation 9) multiplies the loss of a row by alpha, 0 or 1. A row with alpha 0 is not an anchor, but its query,
positive and negatives remain in the sums of the other rows. n is still the number of all rows.

``training.micro_batch`` computes the loss of a large batch in the memory of a small one (GradCache, Gao et al. 2021), with the
same gradients except for dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Denominator = Literal["batch", "hard-negatives", "negatives"]
MISSING_TEXT = -1
"""Id of a hard negative that a row does not have."""


def make_loss(model: Any, temperature: float, denominator: Denominator = "batch", micro_batch: int | None = None) -> Any:
    """Make the loss of the module's equations over the embeddings of queries, positives and negatives.

    Args:
        model: A SentenceTransformer.
        temperature: t.
        denominator: The texts of D_i.
        micro_batch: Rows per forward pass; None takes all rows of the batch.

    Returns:
        A sentence-transformers loss, whose labels are those of ``compute_loss``.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    class ContrastiveLoss(MultipleNegativesRankingLoss):
        """The loss of a batch."""

        def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
            return compute_loss(embeddings, labels, temperature, denominator)

    class CachedContrastiveLoss(CachedMultipleNegativesRankingLoss):
        """The same loss, computed by GradCache."""

        def calculate_loss(self, reps: list[list[Tensor]], labels: Tensor, *, with_backward: bool = False) -> Tensor:
            loss = compute_loss([torch.cat(column) for column in reps], labels, temperature, denominator)
            if with_backward:
                loss.backward()
            return loss.detach() if with_backward else loss

    return ContrastiveLoss(model) if micro_batch is None else CachedContrastiveLoss(model, mini_batch_size=micro_batch)


def compute_loss(embeddings: Sequence[Tensor], labels: Tensor, temperature: float, denominator: Denominator = "batch") -> Tensor:
    """Compute the loss of a batch.

    Args:
        embeddings: Embeddings of queries, positives and k columns of hard negatives of n rows, each of shape (n, d).
        labels: Integers of shape (n, 3 + k): alpha, then the ids of the texts in the order of the embeddings. Equal texts have
            equal ids; ``MISSING_TEXT`` marks a hard negative that the row does not have.
        temperature: t.
        denominator: The texts of D_i.

    Returns:
        A scalar; 0 without anchors. A row whose sum is empty ("negatives" only) has no loss.
    """
    queries, positives, *_ = embeddings
    anchors, texts = labels[:, 0], labels[:, 1:]
    query_texts, positive_texts, document_texts = texts[:, 0], texts[:, 1], texts[:, 1:].T.flatten()
    rows, is_own = len(queries), torch.eye(len(queries), dtype=torch.bool, device=queries.device)

    is_related = _match_ids(query_texts, query_texts) | _match_ids(positive_texts, positive_texts)
    is_answer = _mark_related(is_related, _match_ids(positive_texts, document_texts)) | _match_ids(query_texts, document_texts)
    is_excluded = is_answer | (document_texts == MISSING_TEXT)
    if denominator != "batch":
        is_excluded[:, :rows] = True
    if denominator != "negatives":
        is_excluded[:, :rows] &= ~is_own
    loss = _compute_row_losses(compute_cosines(queries, torch.cat(list(embeddings[1:]))) / temperature, is_excluded)
    if denominator == "negatives":
        loss = loss * ~is_excluded.all(dim=1)
    else:
        is_question = _mark_related(is_related, _match_ids(query_texts, query_texts)) | _match_ids(positive_texts, query_texts)
        loss = loss + _compute_row_losses(compute_cosines(positives, queries) / temperature, is_question & ~is_own)
    return (anchors * loss).mean()


def _match_ids(first: Tensor, second: Tensor) -> Tensor:
    """Compare all ids of two lists, shape (n, m)."""
    return first[:, None] == second


def _mark_related(is_related: Tensor, is_equal: Tensor) -> Tensor:
    """Mark the texts (m) that equal a text of any row related to row i: shapes (n, n) and (n, m) give (n, m)."""
    return (is_related.float() @ is_equal.float()) > 0


def _compute_row_losses(scores: Tensor, is_excluded: Tensor) -> Tensor:
    """Compute the loss of each row from its scores, whose diagonal is the target: shape (n, m) gives (n,)."""
    return scores.masked_fill(is_excluded, torch.finfo(scores.dtype).min / 2).logsumexp(dim=1) - scores.diagonal()


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
