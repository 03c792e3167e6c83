"""Losses of conditional similarity (C-STS, Deshpande et al. 2023, section 4.1, "Objectives").

With a score y and its rating r (1 to 5), and the scores y+ and y- of one pair of sentences under the condition with the higher
and the lower rating::

    t        = low + (high - low) * (r - 1) / 4                  the scaled rating; low + (high - low) * r / 5 for STS-B
    MSE      = mean (y - t)^2                                    over all rows
    Quad     = mean max(0, margin + (1 - y+) - (1 - y-))         over ordered pairs; the distance is one minus the cosine
    Quad+MSE = quad_weight * Quad + mse_weight * MSE

The paper does not describe the scaling. The authors' code maps ratings to [0, 1], the defaults of ``low`` and ``high``, and has a
margin of 1. Quad needs the cosine of two vectors, so it applies to the bi- and tri-encoder. A pair without order (equal ratings,
one row, more than two rows) contributes only MSE terms; the authors' code orders equal ratings as in the file, and drops pairs
without exactly two rows.
"""

from __future__ import annotations

from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor

from inbedder.conditional.rated_rows import MAX_RATING, MIN_RATING
from inbedder_finetune.conditional.conditional_recipe import ConditionalObjective

Number = TypeVar("Number", float, Tensor)


def scale_rating(
    rating: Number, low: float = 0.0, high: float = 1.0, scale: tuple[float, float] = (MIN_RATING, MAX_RATING)
) -> Number:
    """Scale a rating to the range of scores (t of the module's equations).

    Args:
        rating: A rating, or a tensor of ratings.
        low: Scaled value of the lowest rating.
        high: Scaled value of the highest rating.
        scale: The lowest and the highest rating.

    Returns:
        The scaled rating, of the same type and shape.

    Example:
        >>> scale_rating(3.0)
        0.5
    """
    lowest, highest = scale
    return low + (high - low) * (rating - lowest) / (highest - lowest)


def compute_mse(scores: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean squared error.

    Args:
        scores: y, shape (n,).
        targets: t, shape (n,).

    Returns:
        A scalar.
    """
    return F.mse_loss(scores, targets)


def compute_quad(higher: Tensor, lower: Tensor, margin: float = 1.0) -> Tensor:
    """Compute the quadruplet loss, which separates the scores of a pair of sentences under two conditions by a margin.

    Args:
        higher: y+, cosines under the higher-rated conditions, shape (pairs,).
        lower: y-, cosines of the same sentences under the lower-rated conditions, shape (pairs,).
        margin: The margin; cosines differ by at most 2.

    Returns:
        A scalar; 0 without pairs.
    """
    return F.relu(margin - higher + lower).sum() / max(1, len(higher))


def compute_batch_loss(scores: Tensor, targets: Tensor, higher: Tensor, objective: ConditionalObjective) -> Tensor:
    """Compute the loss of one batch.

    Args:
        scores: y, shape (n,).
        targets: t, scaled ratings, shape (n,).
        higher: True at the higher-rated row of an ordered pair, which the lower-rated row follows; bool, shape (n,).
        objective: The recipe's section ``objective``.

    Returns:
        A scalar.
    """
    if objective.loss == "mse":
        return compute_mse(scores, targets)
    indices = higher.nonzero().squeeze(-1)
    contrast = compute_quad(scores[indices], scores[indices + 1], objective.margin)
    if objective.loss == "quad":
        return contrast
    return objective.quad_weight * contrast + objective.mse_weight * compute_mse(scores, targets)
