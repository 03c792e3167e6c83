"""Order of tasks: the closed tour with the most similar neighbours (Data-CUBE paper, section 4.2).

With the ``similarity`` S of m tasks, the value of a tour o is (equation 6, with the closing edge counted once)::

    S[o_1, o_2] + S[o_2, o_3] + ... + S[o_m-1, o_m] + S[o_m, o_1]

The paper searches for it by simulated annealing (``annealing``), and so do recipes by default. "2-opt" improves greedy tours from
several tasks by reversing parts of them until no reversal gains, and takes the best one. It is faster and finds better tours:
``finetune/results/tours.json``, written by ``scripts/reproduce/compare_tours.py``, compares both with the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from inbedder.errors import InputError
from inbedder_finetune.curriculum.annealing import anneal

Floats = np.ndarray[Any, np.dtype[np.float64]]
Tour = Literal["annealing", "2-opt"]

MAX_STARTS = 20
"""Maximum number of greedy tours that 2-opt improves."""
ANNEALING_STEPS = 2_000_000
"""Number of swaps that annealing proposes in the paper (section 5.1)."""
RELATIVE_TOLERANCE = 1e-12
"""Gains up to this share of the largest similarity count as rounding errors."""


def order_tasks(similarity: Floats, *, method: Tour = "2-opt", steps: int = ANNEALING_STEPS, seed: int = 0) -> list[int]:
    """Order tasks so that neighbours are similar.

    The tour starts with task 0, followed by the smaller of its two neighbours.

    Args:
        similarity: Symmetric, shape (m, m); the diagonal is ignored. Asymmetries up to 1e-5 of the largest value are averaged.
        method: "2-opt", or "annealing" as in the paper.
        steps: Number of swaps that annealing proposes.
        seed: Random seed.

    Returns:
        The m tasks, each once.

    Raises:
        InputError: If the matrix is not square, not symmetric or not finite, the method is unknown, or steps is negative.

    Example:
        >>> angles = np.array([0.0, 2.0, 1.0, 3.0])
        >>> order_tasks(np.cos(angles[:, None] - angles))
        [0, 2, 1, 3]
    """
    checked = check_similarity(similarity)
    if method not in ("2-opt", "annealing"):
        raise InputError(f"Unknown method {method!r}. Choose 2-opt or annealing.")
    if steps < 0:
        raise InputError(f"steps must be 0 or more, not {steps}.")
    tasks = len(checked)
    if tasks < 4:
        return list(range(tasks))  # all closed tours are equal
    if method == "annealing":
        best = anneal(checked, steps, seed)
    else:
        starts = np.random.default_rng(seed).permutation(tasks)[:MAX_STARTS]
        tours = [run_two_opt(checked, build_greedy_tour(checked, int(start))) for start in starts]
        best = max(tours, key=lambda tour: measure_tour(checked, tour))
    start_index = best.index(0)
    best = best[start_index:] + best[:start_index]
    return best if best[1] < best[-1] else [0, *best[:0:-1]]


def measure_tour(similarity: Floats, order: Sequence[int]) -> float:
    """Compute the value of a closed tour (equation 6).

    Args:
        similarity: Symmetric, shape (m, m).
        order: The m tasks, each once.

    Returns:
        Sum of the similarities of neighbours, including the last and the first task; 0 for fewer than two tasks.

    Raises:
        InputError: If the matrix is not valid, or the order does not hold each task once.
    """
    checked, tour = check_similarity(similarity), [int(task) for task in order]
    if sorted(tour) != list(range(len(checked))):
        raise InputError(f"The order must hold each of the {len(checked)} tasks once.")
    return math.fsum(checked[tour, tour[1:] + tour[:1]]) if tour else 0.0


def check_similarity(similarity: Floats) -> Floats:
    """Check a similarity matrix, and make it exactly symmetric.

    Args:
        similarity: Symmetric, shape (m, m).

    Returns:
        float64, exactly symmetric, with a diagonal of 0, shape (m, m).

    Raises:
        InputError: If the matrix is not square, not symmetric or not finite.
    """
    try:
        checked = np.array(similarity, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The similarity of tasks must be a matrix of numbers: {error}") from error
    if checked.size == 0:
        return np.empty((0, 0))
    if checked.ndim != 2 or checked.shape[0] != checked.shape[1]:
        raise InputError(f"The similarity of m tasks must have the shape (m, m), not {checked.shape}.")
    np.fill_diagonal(checked, 0.0)
    if not np.isfinite(checked).all():
        raise InputError("The similarity holds values that are not finite. Check the task vectors for NaN.")
    if np.abs(checked - checked.T).max() > 1e-5 * np.abs(checked).max():
        raise InputError("The similarity is not symmetric. Average both directions: (s + s.T) / 2.")
    halves: Floats = (checked + checked.T) / 2
    return halves


def build_greedy_tour(similarity: Floats, start: int = 0) -> list[int]:
    """Build a tour that always goes to the most similar remaining task.

    Args:
        similarity: Symmetric, shape (m, m).
        start: The first task.

    Returns:
        The m tasks, each once.

    Raises:
        InputError: If the matrix is not valid.
    """
    remaining = check_similarity(similarity)
    tour = [start] if len(remaining) else []
    remaining[:, tour] = -np.inf
    for _ in range(len(remaining) - 1):
        tour.append(int(remaining[tour[-1]].argmax()))
        remaining[:, tour[-1]] = -np.inf
    return tour


def run_two_opt(similarity: Floats, order: Sequence[int]) -> list[int]:
    """Improve a tour by reversing parts of it, the largest gain first, until no reversal gains.

    Args:
        similarity: Symmetric, shape (m, m).
        order: The m tasks, each once.

    Returns:
        A tour with at least the same value.

    Raises:
        InputError: If the matrix is not valid.
    """
    checked, tour = check_similarity(similarity), np.array(order, dtype=np.int64)
    tasks = len(tour)
    while tasks > 3:
        after = np.roll(tour, -1)
        edges = checked[tour, after]
        gains = np.triu(checked[np.ix_(tour, tour)] + checked[np.ix_(after, after)] - edges[:, None] - edges, 2)
        first, second = divmod(int(gains.argmax()), tasks)
        if gains[first, second] <= RELATIVE_TOLERANCE * max(1.0, float(np.abs(edges).max())):
            break
        tour[first + 1 : second + 1] = tour[first + 1 : second + 1][::-1]
    return [int(task) for task in tour]
