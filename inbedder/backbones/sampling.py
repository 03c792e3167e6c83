"""Drawn answers: each prompt draws from a stream of its own, which its tokens and the seed make.

So what is drawn depends neither on the batch, nor on the other texts, nor on what other threads draw.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

if TYPE_CHECKING:
    from inbedder.options import Sampling
    from inbedder.prompting.tokenization import PromptTokens

COLDEST = 1e-30
"""Temperatures below are as this one: quotients of float32 numbers would overflow, or be no numbers at all."""


def prompt_seed(seed: int, ids: Sequence[int]) -> int:
    """Hash the user's seed and a prompt's token ids to the 48-bit seed of that prompt's stream."""
    return int.from_bytes(hashlib.blake2b(json.dumps([seed, list(ids)]).encode(), digest_size=6).digest(), "little")


def uniform_numbers(prompts: Sequence[PromptTokens], sampling: Sampling, count: int) -> Tensor:
    """Draw the numbers that decide which tokens are sampled.

    Args:
        prompts: Tokenized prompts.
        sampling: Number of answers per prompt, and the seed.
        count: Maximum length of an answer in tokens.

    Returns:
        float32 in [0, 1), shape (batch * n, count); the answers to one prompt are adjacent.
    """
    streams = (np.random.default_rng(prompt_seed(sampling.seed, prompt.ids.tolist())) for prompt in prompts)
    return torch.from_numpy(np.concatenate([stream.random((sampling.n, count), dtype=np.float32) for stream in streams]))


def draw(scores: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
    """Draw a token of each row's nucleus, by the inverse of its distribution function.

    Args:
        scores: Logits, float32, shape (rows, vocabulary).
        sampling: Temperature and top_p.
        numbers: One number in [0, 1) per row, shape (rows,).

    Returns:
        Token ids, shape (rows,).
    """
    below = scores - scores.amax(-1, keepdim=True)  # the likeliest stays at 0, however small the temperature is
    ranked, order = (below / max(sampling.temperature, COLDEST)).softmax(-1).sort(dim=-1, descending=True, stable=True)
    inside = ranked.cumsum(-1) - ranked < sampling.top_p
    inside[:, 0] = True
    sums = ranked.masked_fill(~inside, 0.0).cumsum(-1)
    wanted = numbers.to(sums).unsqueeze(1) * sums[:, -1:]
    place = torch.searchsorted(sums, wanted, right=True)
    return order.gather(1, torch.minimum(place, inside.sum(-1, keepdim=True) - 1)).squeeze(1)


def next_numbers(prompts: Sequence[PromptTokens], sampling: Sampling, device: torch.device) -> Iterator[Tensor]:
    """The numbers of one answer per prompt, token by token; none where the answer is greedy."""
    if not sampling.temperature:
        return iter(())
    return iter(uniform_numbers(prompts, sampling, sampling.max_new_tokens).to(device).T)


def next_token(scores: Tensor, sampling: Sampling, numbers: Iterator[Tensor]) -> Tensor:
    """Choose a token id per row of logits, shape (rows, vocabulary): the likeliest, or one sampled with the next ``numbers``."""
    return draw(scores.float(), sampling, next(numbers)) if sampling.temperature else scores.argmax(-1)


class DrawnTokens(LogitsProcessor):  # type: ignore[misc]
    """Leaves one token of each row, the drawn one, so that greedy decoding takes it."""

    def __init__(self, sampling: Sampling, numbers: Tensor) -> None:
        """Keep the temperature, top_p and ``uniform_numbers`` (on the model's device) that decide the draws."""
        self.sampling = sampling
        self.columns = iter(numbers.T)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Rule out all but the sampled token of each row: 0 there and -inf elsewhere, shape (rows, vocabulary)."""
        token = draw(scores.float(), self.sampling, next(self.columns))
        return torch.full_like(scores, float("-inf")).scatter(1, token.unsqueeze(1), 0.0)
