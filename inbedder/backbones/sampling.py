"""Sampled answers: each prompt has its own stream of random numbers, seeded by the seed and its tokens.

So an answer depends neither on the batch, nor on the other texts, nor on other threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from inbedder.options import Sampling
    from inbedder.prompting.tokenization import PromptTokens

MIN_TEMPERATURE = 1e-30
"""The lowest temperature in use; below it, float32 quotients would overflow or be NaN."""


def make_prompt_seed(seed: int, ids: Sequence[int]) -> int:
    """Make the 48-bit seed of a prompt's stream from the user's seed and the prompt's token ids."""
    return int.from_bytes(hashlib.blake2b(json.dumps([seed, list(ids)]).encode(), digest_size=6).digest(), "little")


def sample_uniform_numbers(prompts: Sequence[PromptTokens], sampling: Sampling, count: int) -> Tensor:
    """Sample the numbers that decide which tokens are chosen.

    Args:
        prompts: Tokenized prompts.
        sampling: Number of answers per prompt, and the seed.
        count: Maximum length of an answer in tokens.

    Returns:
        float32 in [0, 1), shape (batch * n, count); the answers to one prompt are adjacent.
    """
    streams = (np.random.default_rng(make_prompt_seed(sampling.seed, prompt.ids.tolist())) for prompt in prompts)
    return torch.from_numpy(np.concatenate([stream.random((sampling.n, count), dtype=np.float32) for stream in streams]))


def sample_tokens(scores: Tensor, sampling: Sampling, numbers: Tensor) -> Tensor:
    """Sample a token from each row's nucleus by inverting its distribution function.

    Args:
        scores: Logits, float32, shape (rows, vocabulary).
        sampling: Temperature and top_p.
        numbers: One number in [0, 1) per row, shape (rows,).

    Returns:
        Token ids, shape (rows,).
    """
    shifted = scores - scores.amax(-1, keepdim=True)  # the likeliest stays at 0, however small the temperature is
    ranked, order = (shifted / max(sampling.temperature, MIN_TEMPERATURE)).softmax(-1).sort(dim=-1, descending=True, stable=True)
    is_in_nucleus = ranked.cumsum(-1) - ranked < sampling.top_p
    is_in_nucleus[:, 0] = True
    sums = ranked.masked_fill(~is_in_nucleus, 0.0).cumsum(-1)
    targets = numbers.to(sums).unsqueeze(1) * sums[:, -1:]
    ranks = torch.searchsorted(sums, targets, right=True)
    return order.gather(1, torch.minimum(ranks, is_in_nucleus.sum(-1, keepdim=True) - 1)).squeeze(1)


def iterate_numbers(prompts: Sequence[PromptTokens], sampling: Sampling, device: torch.device) -> Iterator[Tensor]:
    """Iterate over the numbers of one answer per prompt, token by token; there are none for a greedy answer."""
    if not sampling.temperature:
        return iter(())
    return iter(sample_uniform_numbers(prompts, sampling, sampling.max_new_tokens).to(device).T)


def choose_tokens(scores: Tensor, sampling: Sampling, numbers: Iterator[Tensor]) -> Tensor:
    """Choose a token id per row of logits, shape (rows, vocabulary): the likeliest, or one sampled with the next number."""
    return sample_tokens(scores.float(), sampling, next(numbers)) if sampling.temperature else scores.argmax(-1)


class ChosenTokenProcessor:
    """A logits processor that chooses each row's token, records its probability and leaves it to greedy decoding."""

    def __init__(self, sampling: Sampling, numbers: Tensor) -> None:
        """Store temperature, top_p and the numbers of ``sample_uniform_numbers``, on the model's device."""
        self.sampling = sampling
        self.columns = iter(numbers.T)
        self.log_probs: list[Tensor] = []
        """Logarithm of the probability of each row's token at a temperature of 1, float32, shape (rows,), one per step."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Rule out all but the chosen token of each row: 0 there and -inf elsewhere, shape (rows, vocabulary)."""
        token = choose_tokens(scores, self.sampling, self.columns).unsqueeze(1)
        logits = scores.float()
        self.log_probs.append(logits.gather(1, token).squeeze(1) - logits.logsumexp(1))
        return torch.full_like(scores, float("-inf")).scatter(1, token, 0.0)
