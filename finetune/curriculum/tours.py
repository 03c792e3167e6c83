"""The order of tasks: the closed tour whose neighbours are most alike (Data-CUBE paper, section 4.2).

With ``similarity`` S of m tasks, a tour o is worth (equation 6, the closing edge counted once)::

    S[o_1, o_2] + S[o_2, o_3] + ... + S[o_m-1, o_m] + S[o_m, o_1]

Simulated annealing looks for the tour that is worth most. A step is one proposed move. It draws a place p of the tour and a
task c of the ``NEAR`` that are most similar to the task there, and proposes to

- swap the task after p with c (the paper's move; four edges change, or two when they are neighbours), or
- reverse the tour from after p up to c (2-opt's move; two edges change).

Either puts c after p's task, and the gain is worked out from the changed edges alone. A gain g above 0 is accepted, any other
with probability exp(g / T) (equation 7, whose sign is meant so); one of 0 is not made. T cools geometrically from ``HOT`` to
``COLD`` standard deviations of S. ``BATCH`` proposals, half of each kind, are weighed at once against the same tour, and one
drawn from the accepted is made: the others are steps that moved nothing.

The paper starts at a random order and swaps any two tasks. 2 million such steps over 330 drawn tasks (T from 1 to 0.02: it
gives none) stayed 4 to 18% short of 2-opt's tours. So the start here is a greedy tour, 1 to 2% short of them, and the moves
are those above: within 0.6% of them in 3 processor seconds (``results/tours.json``, made by ``scripts/compare_tours.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inbedder.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

BATCH = 128
NEAR = 10
HOT, COLD = 0.5, 0.02
ENOUGH = 50_000
"""Steps a task: fewer than 40 tasks take fewer than 2 million."""
PATIENCE = 100_000
"""Annealing stops early when so many steps on end moved nothing."""
TIE = 1e-12
"""Gains of less, in standard deviations of S, are rounding."""


def order_tasks(similarity: Floats, *, steps: int = 2_000_000, seed: int = 0) -> list[int]:
    """Order tasks by simulated annealing so that neighbours are alike.

    The start is ``greedy_tour`` from a task that the seed draws; the best tour seen is returned, so it is never worth less than
    the start, which ``steps=0`` returns. The tour is written from task 0 on, towards the smaller of its two neighbours.

    Args:
        similarity: Symmetric, shape (m, m); the diagonal is not read. Differences of 1e-5 of the largest value between both
            sides are taken as rounding and averaged.
        steps: At most so many proposed moves, and at most ``ENOUGH`` a task.
        seed: Seed of start and moves.

    Returns:
        Every task once, m numbers.

    Raises:
        InputError: When the matrix is not square, not symmetric or not finite, or steps are negative.
    """
    checked = check_similarity(similarity)
    if steps < 0:
        raise InputError(f"steps must be 0 or more, not {steps}.")
    tasks = len(checked)
    if tasks < 4:
        return list(range(tasks))  # all tours are the same
    draw = np.random.default_rng(seed)
    start = np.array(greedy_tour(checked, int(draw.integers(tasks))))
    found = _anneal(checked, start, min(steps, ENOUGH * tasks), draw)
    best = max(start.tolist(), found.tolist(), key=lambda tour: tour_similarity(checked, tour))
    at = best.index(0)
    best = best[at:] + best[:at]
    return best if best[1] < best[-1] else [0, *best[:0:-1]]


def _anneal(similarity: Floats, start: Places, steps: int, draw: np.random.Generator) -> Places:
    """The best tour seen from a start of 4 or more tasks."""
    tasks = len(start)
    spread = float(similarity[~np.eye(tasks, dtype=bool)].std())
    if spread <= TIE * float(np.abs(similarity).max()):
        return start
    scaled = similarity / spread
    near = np.argsort(-scaled - np.diag(np.full(tasks, -np.inf)), axis=1, kind="stable")[:, : min(NEAR, tasks - 1)]
    tour, best, gained, most, still = start.copy(), start.copy(), 0.0, 0.0, 0
    where, after = np.argsort(tour), np.roll(np.arange(tasks), -1)
    for done in range(0, steps, BATCH):
        size = min(BATCH, steps - done)
        heat = HOT * (COLD / HOT) ** (done / steps)
        places, ranks = (draw.random((2, size)) * [[tasks], [near.shape[1]]]).astype(np.int64)
        others, swaps = where[near[tour[places], ranks]], size // 2
        moved = swap_gains(scaled, tour, after[places[:swaps]], others[:swaps])
        turned = reversal_gains(scaled, tour, places[swaps:], others[swaps:])
        gains = np.concatenate([moved, turned])
        accepted = np.flatnonzero((gains > -heat * draw.standard_exponential(size)) & (np.abs(gains) > TIE))
        still = 0 if len(accepted) else still + size
        if still >= PATIENCE:
            break
        if not len(accepted):
            continue
        move = int(accepted[draw.integers(len(accepted))])
        place, other = int(places[move]), int(others[move])
        changed = _swap(tour, int(after[place]), other) if move < swaps else _reverse(tour, place, other)
        where[tour[changed]] = changed
        gained += float(gains[move])
        if gained > most + TIE:
            most, best = gained, tour.copy()
    return best


def _swap(tour: Places, first: int, second: int) -> Places:
    """Swap the tasks at two places, in place; the places that changed."""
    changed = np.array([first, second])
    tour[changed] = tour[changed[::-1]]
    return changed


def _reverse(tour: Places, place: int, other: int) -> Places:
    """Reverse the tour from after a place up to another, or what is outside when that is shorter; the places that changed."""
    start, length = place + 1, (other - place) % len(tour)
    if 2 * length > len(tour):
        start, length = other + 1, len(tour) - length
    changed = (start + np.arange(length)) % len(tour)
    tour[changed] = tour[changed[::-1]]
    return changed


def swap_gains(similarity: Floats, tour: Places, first: Places, second: Places) -> Floats:
    """What a tour would gain by swapping the tasks at two places.

    Args:
        similarity: Symmetric with a diagonal of 0, shape (m, m), m of 4 or more.
        tour: The tour, shape (m,).
        first: Places, shape (k,).
        second: Places, shape (k,).

    Returns:
        One gain a swap, shape (k,).
    """
    m, flat = len(tour), similarity.ravel()
    x, y, apart = tour[first], tour[second], np.abs(first - second)
    ahead = np.concatenate([tour[1:], tour[:1]])
    gains = np.zeros(len(x))
    for near_x, near_y in ((tour[first - 1] * m, tour[second - 1] * m), (ahead[first] * m, ahead[second] * m)):
        gains += flat[near_x + y] - flat[near_x + x] + flat[near_y + x] - flat[near_y + y]
    gains += 2 * ((apart == 1) | (apart == m - 1)) * flat[x * m + y]  # the edge between neighbours stays
    return gains


def reversal_gains(similarity: Floats, tour: Places, first: Places, second: Places) -> Floats:
    """What a tour would gain by reversing it from after a first place up to a second.

    Args:
        similarity: Symmetric, shape (m, m).
        tour: The tour, shape (m,).
        first: Places, shape (k,).
        second: Other places, shape (k,).

    Returns:
        One gain a reversal, shape (k,).
    """
    m, flat = len(tour), similarity.ravel()
    ahead = np.concatenate([tour[1:], tour[:1]])
    a, b, c, d = tour[first] * m, ahead[first] * m, tour[second], ahead[second]
    gains: Floats = flat[a + c] + flat[b + d] - similarity[tour[first], ahead[first]] - similarity[c, d]
    return gains


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
    """A similarity as annealing needs it.

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
