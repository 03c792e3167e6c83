"""Measure the time and memory of a computation."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Record = Callable[[str, Any], None]
"""Records a result of a stage by its name."""
MAX_ROUNDS = 5
GIB = 2**30


@contextmanager
def measure_memory(device: str) -> Iterator[dict[str, float]]:
    """Measure the peak of the GPU's memory within the block, weights included, in GiB; give unused memory back after it."""
    memory: dict[str, float] = {}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        yield memory
        if device == "cuda":
            memory["peak memory (GiB)"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
    finally:
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


def time_rounds(encode: Callable[[], Any], max_seconds: float) -> tuple[list[float], Any]:
    """Time a way round by round.

    Args:
        encode: The way; its results are on the CPU when it returns.
        max_seconds: The time after which no further round starts.

    Returns:
        Seconds of each round, and the last results.
    """
    rounds: list[float] = []
    results = None
    while not rounds or (len(rounds) < MAX_ROUNDS and sum(rounds) < max_seconds):
        start = time.perf_counter()
        results = encode()
        rounds.append(time.perf_counter() - start)
    return rounds, results


def compute_median(rounds: list[float]) -> float:
    """Compute the median of all rounds but the first, which warms up; of a single round, its seconds."""
    return statistics.median(rounds[1:] or rounds)


def compare_vectors(vectors: Any, expected_vectors: Any) -> float:
    """Compare the rows that both have: the smallest cosine."""
    count = min(len(vectors), len(expected_vectors))
    pair = (torch.from_numpy(np.array(array[:count], dtype=np.float32)) for array in (vectors, expected_vectors))
    return torch.cosine_similarity(*pair).min().item()
