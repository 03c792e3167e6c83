"""The order of tasks: the closed tour whose neighbours are most alike (Data-CUBE paper, section 4.2).

With ``similarity`` S of m tasks, a tour o is worth (equation 6, the closing edge counted once)::

    S[o_1, o_2] + S[o_2, o_3] + ... + S[o_m-1, o_m] + S[o_m, o_1]

The tour that is worth most is looked for by 2-opt: greedy tours from several tasks, each improved by reversing parts of it until
no reversal gains, and the best of them taken. The paper anneals (``annealing``), which comes less near in more time:
``results/tours.json``, made by ``scripts/bench/compare_tours.py``, has the distance of both to the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inbedder.errors import InputError
from inbedder_finetune.curriculum.annealing import anneal

Floats = np.ndarray[Any, np.dtype[np.float64]]

STARTS = 20
"""Greedy tours that 2-opt improves, at most."""
ENOUGH = 50_000
"""Annealing steps per task: fewer than 40 tasks take fewer than 2 million."""
TIE = 1e-12
"""Gains of less, relative to the largest similarity, are rounding."""


def order_tasks(similarity: Floats, *, method: str = "2-opt", steps: int = 2_000_000, seed: int = 0) -> list[int]:
    """Order tasks so that neighbours are alike.

    The tour is written from task 0 on, towards the smaller of its two neighbours.

    Args:
        similarity: Symmetric, shape (m, m); the diagonal is not read. Differences of 1e-5 of the largest value between both
            sides are taken as rounding and averaged.
        method: "2-opt", or "annealing", the paper's.
        steps: Annealing: at most so many proposed swaps, and at most ``ENOUGH`` per task.
        seed: Seed of the starts, or of start and swaps.

    Returns:
        Every task once, m numbers.

    Raises:
        InputError: When the matrix is not square, not symmetric or not finite, the method is unknown, or steps are negative.
    """
    checked = check_similarity(similarity)
    if method not in ("2-opt", "annealing"):
        raise InputError(f"Unknown method {method!r}. Choose 2-opt or annealing.")
    if steps < 0:
        raise InputError(f"steps must be 0 or more, not {steps}.")
    tasks = len(checked)
    if tasks < 4:
        return list(range(tasks))  # all tours are the same
    if method == "annealing":
        best = anneal(checked, min(steps, ENOUGH * tasks), seed)
    else:
        starts = np.random.default_rng(seed).permutation(tasks)[:STARTS]
        tours = [two_opt(checked, greedy_tour(checked, int(start))) for start in starts]
        best = max(tours, key=lambda tour: tour_similarity(checked, tour))
    at = best.index(0)
    best = best[at:] + best[:at]
    return best if best[1] < best[-1] else [0, *best[:0:-1]]


def tour_similarity(similarity: Floats, order: Sequence[int]) -> float:
    """What a closed tour is worth (equation 6).

    Args:
        similarity: As for ``order_tasks``.
        order: Every task once.

    Returns:
        The sum over neighbours, the last and the first among them; 0 for fewer than two tasks.

    Raises:
        InputError: When the matrix is refused or the order is not one of all its tasks.
    """
    checked, tour = check_similarity(similarity), [int(task) for task in order]
    if sorted(tour) != list(range(len(checked))):
        raise InputError(f"The order must hold each of the {len(checked)} tasks once.")
    return math.fsum(checked[tour, tour[1:] + tour[:1]]) if tour else 0.0


def check_similarity(similarity: Floats) -> Floats:
    """A similarity as the searches need it.

    Args:
        similarity: As for ``order_tasks``.

    Returns:
        float64, symmetric to the bit, with a diagonal of 0, shape (m, m).

    Raises:
        InputError: When it is not square, not symmetric or not finite.
    """
    try:
        checked = np.array(similarity, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"A similarity of tasks is a matrix of numbers: {error}") from error
    if checked.size == 0:
        return np.empty((0, 0))
    if checked.ndim != 2 or checked.shape[0] != checked.shape[1]:
        raise InputError(f"A similarity of m tasks has the shape (m, m), not {checked.shape}.")
    np.fill_diagonal(checked, 0.0)
    if not np.isfinite(checked).all():
        raise InputError("The similarity holds values that are not finite: is a task's vector empty, zero or NaN?")
    if np.abs(checked - checked.T).max() > 1e-5 * np.abs(checked).max():
        raise InputError("The similarity is not symmetric: give that of both directions, such as (s + s.T) / 2.")
    halves: Floats = (checked + checked.T) / 2
    return halves


def greedy_tour(similarity: Floats, start: int = 0) -> list[int]:
    """From a task on, always to the most similar one that is left.

    Args:
        similarity: As for ``order_tasks``.
        start: The first task.

    Returns:
        Every task once.

    Raises:
        InputError: When the matrix is refused.
    """
    left = check_similarity(similarity)
    tour = [start] if len(left) else []
    left[:, tour] = -np.inf
    for _ in range(len(left) - 1):
        tour.append(int(left[tour[-1]].argmax()))
        left[:, tour[-1]] = -np.inf
    return tour


def two_opt(similarity: Floats, order: Sequence[int]) -> list[int]:
    """Reverse parts of a tour, the most gainful first, until no reversal gains.

    Args:
        similarity: As for ``order_tasks``.
        order: Every task once.

    Returns:
        A tour that is worth no less.

    Raises:
        InputError: When the matrix is refused.
    """
    checked, tour = check_similarity(similarity), np.array(order, dtype=np.int64)
    tasks = len(tour)
    while tasks > 3:
        after = np.roll(tour, -1)
        edges = checked[tour, after]
        gains = np.triu(checked[np.ix_(tour, tour)] + checked[np.ix_(after, after)] - edges[:, None] - edges, 2)
        first, second = divmod(int(gains.argmax()), tasks)
        if gains[first, second] <= TIE * max(1.0, float(np.abs(edges).max())):
            break
        tour[first + 1 : second + 1] = tour[first + 1 : second + 1][::-1]
    return [int(task) for task in tour]
