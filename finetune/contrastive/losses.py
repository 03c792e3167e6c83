r"""What contrastive fine-tuning minimises (INSTRUCTOR paper, section 2.2 and appendix A).

E(I, x) is the mean of the last states over the tokens of x, of length 1; the instruction I is read and not pooled
(``instructed``). With s the cosine and t the temperature, a batch of n rows with k hard negatives each is learned by::

    L   = 1/2 (L_q + L_p)
    L_q = mean_i -log( exp(s(q_i, p_i)/t) / sum_{d in D} exp(s(q_i, d)/t) )
    L_p = mean_i -log( exp(s(q_i, p_i)/t) / sum_j exp(s(q_j, p_i)/t) )

D holds the n positives and the n*k hard negatives of the batch. This is sentence-transformers' MultipleNegativesRankingLoss in
two directions, each with its own softmax. The paper adds the directions, here they are averaged, which AdamW does not tell
apart. (The authors' code leaves the other rows' positives out of D; the paper's in-batch loss has them.)
``training.micro_batch`` takes the loss of a large batch with the memory of a small one (GradCache, Gao et al. 2021): the same
gradients, dropout aside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def make_loss(model: Any, temperature: float, micro_batch: int | None = None) -> Any:
    """The loss of the module's text over the embeddings of query, positives and negatives.

    Args:
        model: A SentenceTransformer.
        temperature: t.
        micro_batch: Rows that are held at once; None holds all.

    Returns:
        A loss of sentence-transformers.
    """
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    both: dict[str, Any] = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    settings = {"scale": 1 / temperature, "similarity_fct": cosine, **both}
    if micro_batch is None:
        return MultipleNegativesRankingLoss(model, **settings)
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=micro_batch, **settings)


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """Cosines in float32 under autocast too: bfloat16's steps near 1 are 0.004, and the temperature makes that 0.4.

    Args:
        first: Shape (n, d).
        second: Shape (m, d).

    Returns:
        Shape (n, m).
    """
    with torch.autocast(first.device.type, enabled=False):
        first, second = (torch.nn.functional.normalize(side.float(), dim=-1) for side in (first, second))
        return first @ second.T
