"""Simulated annealing of the order of tasks, as Data-CUBE describes it (Min et al. 2024, algorithm 1, lines 1 to 12).

It starts at a random order and proposes to swap any two tasks. A gain above 0 is accepted, any other gain g with probability
exp(g / T) (equation 7, whose sign is meant so). The paper gives no temperatures: T cools geometrically from ``HOT`` to ``COLD``
standard deviations of the similarities.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

HOT, COLD = 1.0, 0.02


def anneal(similarity: np.ndarray[Any, np.dtype[np.float64]], steps: int, seed: int = 0) -> list[int]:
    """A closed tour of tasks whose neighbours are alike.

    Args:
        similarity: Symmetric with a diagonal of 0, shape (m, m), m of 4 or more.
        steps: Proposed swaps.
        seed: Seed of the first order and of the swaps.

    Returns:
        The last tour, every task once.
    """
    draw, tasks, alike = random.Random(seed), len(similarity), similarity.tolist()
    spread = float(similarity[~np.eye(tasks, dtype=bool)].std())
    tour = draw.sample(range(tasks), tasks)
    if spread <= 1e-12 * float(np.abs(similarity).max()):
        return tour
    heat, cooling = HOT * spread, (COLD / HOT) ** (1 / max(1, steps))
    for _ in range(steps):
        first, second = int(draw.random() * tasks), int(draw.random() * tasks)
        heat *= cooling
        if first == second:
            continue
        of_first, of_second = alike[tour[first]], alike[tour[second]]
        around_first = tour[first - 1], tour[(first + 1) % tasks]
        around_second = tour[second - 1], tour[(second + 1) % tasks]
        gain = sum(of_second[task] - of_first[task] for task in around_first)
        gain += sum(of_first[task] - of_second[task] for task in around_second)
        if abs(first - second) in (1, tasks - 1):
            gain += 2 * of_first[tour[second]]  # the edge between neighbours stays
        if gain > 0 or draw.random() < math.exp(gain / heat):
            tour[first], tour[second] = tour[second], tour[first]
    return tour
