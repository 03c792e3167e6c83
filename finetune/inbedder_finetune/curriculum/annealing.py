"""Simulated annealing of the order of tasks, as in Data-CUBE (Min et al. 2024, algorithm 1, lines 1 to 12).

It starts with a random order and proposes swaps of two tasks. A gain above 0 is accepted, any other gain g with probability
exp(g / T) (equation 7, with the intended sign). The paper gives no temperatures: here T falls geometrically from
``START_TEMPERATURE`` to ``END_TEMPERATURE`` standard deviations of the similarities.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

START_TEMPERATURE, END_TEMPERATURE = 1.0, 0.02


def anneal(similarity: np.ndarray[Any, np.dtype[np.float64]], steps: int, seed: int = 0) -> list[int]:
    """Search for a closed tour of tasks with similar neighbours by simulated annealing.

    Args:
        similarity: Symmetric with a diagonal of 0, shape (m, m), with m of at least 4.
        steps: Number of proposed swaps.
        seed: Random seed.

    Returns:
        The last tour, with every task once.
    """
    rng, tasks, similarities = random.Random(seed), len(similarity), similarity.tolist()
    spread = float(similarity[~np.eye(tasks, dtype=bool)].std())
    tour = rng.sample(range(tasks), tasks)
    if spread <= 1e-12 * float(np.abs(similarity).max()):
        return tour
    temperature, cooling = START_TEMPERATURE * spread, (END_TEMPERATURE / START_TEMPERATURE) ** (1 / max(1, steps))
    for _ in range(steps):
        first, second = int(rng.random() * tasks), int(rng.random() * tasks)
        temperature *= cooling
        if first == second:
            continue
        first_similarities, second_similarities = similarities[tour[first]], similarities[tour[second]]
        first_neighbours = tour[first - 1], tour[(first + 1) % tasks]
        second_neighbours = tour[second - 1], tour[(second + 1) % tasks]
        gain = sum(second_similarities[task] - first_similarities[task] for task in first_neighbours)
        gain += sum(first_similarities[task] - second_similarities[task] for task in second_neighbours)
        if abs(first - second) in (1, tasks - 1):
            gain += 2 * first_similarities[tour[second]]  # the edge between neighbours stays
        if gain > 0 or rng.random() < math.exp(gain / temperature):
            tour[first], tour[second] = tour[second], tour[first]
    return tour
