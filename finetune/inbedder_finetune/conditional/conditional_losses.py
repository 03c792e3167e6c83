"""What is minimised in conditional similarity (C-STS, Deshpande et al. 2023, section 4.1, "Objectives").

With y a score, r its rating (1 to 5), and of each pair of sentences y+ under the higher- and y- under the lower-rated condition::

    t        = low + (high - low) * (r - 1) / 4                  the scaled rating
    MSE      = mean (y - t)^2                                    over all rows
    Quad     = mean max(0, margin + (1 - y+) - (1 - y-))         over ordered pairs; the distance is one minus the cosine
    Quad+MSE = quad_weight * Quad + mse_weight * MSE

The paper does not speak of the scaling; the authors' code maps ratings to 0 to 1, which are the defaults of ``low`` and ``high``,
and has a margin of 1. Quad needs a cosine of two vectors, so it is for the bi- and tri-encoder. A pair without order (equal
ratings, one row, more than two) adds its MSE terms alone; the authors' code takes equal ratings in the order of the file, and
leaves out what has not two rows.
"""

from __future__ import annotations

from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor

from inbedder.conditional.rated_rows import LEAST, MOST
from inbedder_finetune.conditional.conditional_recipe import ConditionalObjective

Number = TypeVar("Number", float, Tensor)


def scaled(rating: Number, low: float = 0.0, high: float = 1.0) -> Number:
    """Where a rating stands on the scale of the scores (t of the module's text).

    Args:
        rating: 1 to 5, one or a tensor of them.
        low: What rating 1 becomes.
        high: What rating 5 becomes.

    Returns:
        Of the same kind and shape.
    """
    return low + (high - low) * (rating - LEAST) / (MOST - LEAST)


def mse(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error.

    Args:
        scores: y, shape (n,).
        targets: t, shape (n,).

    Returns:
        A scalar.
    """
    return F.mse_loss(scores, targets)


def quad(higher: Tensor, lower: Tensor, margin: float = 1.0) -> Tensor:
    """The quadruplet loss: a pair of sentences is to be closer under the condition that was rated higher, by a margin.

    Args:
        higher: y+, cosines under the higher-rated conditions, shape (pairs,).
        lower: y-, cosines of the same sentences under the lower-rated conditions, shape (pairs,).
        margin: By how much; the cosines' difference is at most 2.

    Returns:
        A scalar, 0 where there is no pair.
    """
    return F.relu(margin - higher + lower).sum() / max(1, len(higher))


def loss_of(scores: Tensor, targets: Tensor, higher: Tensor, objective: ConditionalObjective) -> Tensor:
    """The loss of one batch.

    Args:
        scores: y, shape (n,).
        targets: Scaled ratings, shape (n,).
        higher: For Quad: True at the higher-rated row of an ordered pair, whose lower-rated row is the next; bool, shape (n,).
        objective: The recipe's.

    Returns:
        A scalar.
    """
    if objective.loss == "mse":
        return mse(scores, targets)
    places = higher.nonzero().squeeze(-1)
    contrast = quad(scores[places], scores[places + 1], objective.margin)
    if objective.loss == "quad":
        return contrast
    return objective.quad_weight * contrast + objective.mse_weight * mse(scores, targets)
