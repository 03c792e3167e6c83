"""Confidence of answers: the geometric mean of the probabilities of an answer's tokens.

The probabilities are the model's at a temperature of 1, before top_p, so that greedy and sampled answers compare. The end token
counts if it was generated, because to stop is a choice too; what follows it does not count. A token that a checkpoint's own
generation settings force has a probability of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from inbedder.prompting.words import is_none


class ScoredAnswer(NamedTuple):
    """An answer and how sure the model is of it."""

    text: str
    """The answer."""
    confidence: float
    """Geometric mean of the probabilities of its tokens, 0 to 1."""

    def select_text(self, min_confidence: float) -> str:
        """Return the answer, or "" if its confidence is lower or the answer is "none"; 0 returns every answer."""
        return "" if min_confidence and (self.confidence < min_confidence or is_none(self.text)) else self.text


def measure_confidences(log_probs: Tensor, tokens: Tensor, stop_ids: Sequence[int]) -> Tensor:
    """Measure the confidence of answers.

    Args:
        log_probs: Logarithm of the probability of each token, float32, shape (..., tokens).
        tokens: Token ids, same shape, with anything after the token that ends an answer.
        stop_ids: Ids of the tokens that end an answer.

    Returns:
        Confidences, 0 to 1, float32, shape (...).
    """
    is_stop = torch.isin(tokens, torch.tensor(stop_ids, dtype=tokens.dtype, device=tokens.device)).long()
    is_counted = is_stop.cumsum(-1) == is_stop  # no earlier token ends the answer
    return (log_probs.masked_fill(~is_counted, 0.0).sum(-1) / is_counted.sum(-1)).exp()
