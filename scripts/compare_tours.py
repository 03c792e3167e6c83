#!/usr/bin/env python3
"""Compare orders of tasks: annealing, a greedy tour, greedy and 2-opt, the paper's own annealing, and the best there is of 9.

python scripts/compare_tours.py --machine "2-core Xeon 2.5 GHz" -o finetune/results/tours.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from finetune.curriculum.tours import Floats, greedy_tour, order_tasks, tour_similarity, two_opt
from inbedder.files import atomic_write

KINDS = {"uniform": 0, "cosines of 384 normal numbers": 384, "cosines of 8 normal numbers": 8}


def drawn(tasks: int, seed: int, width: int = 0) -> Floats:
    """Similarities of drawn tasks: uniform in [0, 1] for a width of 0, otherwise cosines of normal vectors of that width."""
    draw = np.random.default_rng(seed)
    if not width:
        upper = np.triu(draw.random((tasks, tasks)), 1)
        return upper + upper.T
    vectors = draw.normal(size=(tasks, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


def of_all(similarity: Floats) -> float:
    """What the best of all tours is worth."""
    inner = itertools.permutations(range(1, len(similarity)))
    tours = np.array([(0, *tour) for tour in inner if tour[0] < tour[-1]])
    return float(similarity[tours, np.roll(tours, -1, axis=1)].sum(axis=1).max())


def as_published(similarity: Floats, steps: int, seed: int, hot: float = 1.0, cold: float = 0.02) -> list[int]:
    """Algorithm 1, lines 1 to 12, move by move: a random order, swaps of two drawn tasks; the paper gives no temperatures."""
    draw, m, s = random.Random(seed), len(similarity), similarity.tolist()
    spread = float(similarity[~np.eye(m, dtype=bool)].std())
    tour = draw.sample(range(m), m)
    heat, cooling = hot * spread, (cold / hot) ** (1 / steps)
    for _ in range(steps):
        i, j = int(draw.random() * m), int(draw.random() * m)
        heat *= cooling
        if abs(i - j) in (0, 1, m - 1):
            continue
        x, y = s[tour[i]], s[tour[j]]
        a, b, c, d = tour[i - 1], tour[(i + 1) % m], tour[j - 1], tour[(j + 1) % m]
        gain = y[a] + y[b] + x[c] + x[d] - x[a] - x[b] - y[c] - y[d]
        if gain > 0 or draw.random() < math.exp(gain / heat):
            tour[i], tour[j] = tour[j], tour[i]
    return tour


def timed(similarity: Floats, made: Callable[[], Sequence[int]]) -> dict[str, float]:
    """What a way's tour is worth, and what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    tour = made()
    took = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
    return {"similarity": round(tour_similarity(similarity, tour), 4)} | {name: round(value, 2) for name, value in took.items()}


def of_many(kind: str, tasks: int, seed: int, starts: int) -> dict[str, object]:
    """The ways beside each other on one drawn instance."""
    similarity = drawn(tasks, seed, KINDS[kind])

    def opted() -> list[int]:
        tours = [two_opt(similarity, greedy_tour(similarity, start)) for start in range(starts)]
        return max(tours, key=lambda tour: tour_similarity(similarity, tour))

    ways: dict[str, Callable[[], Sequence[int]]] = {
        "annealing": lambda: order_tasks(similarity, seed=seed),
        "its start (greedy)": lambda: order_tasks(similarity, seed=seed, steps=0),
        f"greedy and 2-opt, best of {starts} starts": opted,
        "annealing as published": lambda: as_published(similarity, 2_000_000, seed),
    }
    cells = {name: timed(similarity, made) for name, made in ways.items()}
    best = cells[f"greedy and 2-opt, best of {starts} starts"]["similarity"]
    for cell in cells.values():
        cell["of_2_opt"] = round(cell["similarity"] / best, 4)
    return {"similarities": kind, "tasks": tasks, "seed": seed, "ways": cells}


def of_few(kind: str, tasks: int, seeds: int) -> dict[str, object]:
    """How often annealing finds the best of all tours."""
    found, seconds = 0, []
    for seed in range(seeds):
        similarity = drawn(tasks, seed, KINDS[kind])
        began = time.process_time()
        worth = tour_similarity(similarity, order_tasks(similarity, seed=seed))
        seconds.append(time.process_time() - began)
        found += worth > of_all(similarity) - 1e-9
    return {
        "similarities": kind,
        "tasks": tasks,
        "seeds": seeds,
        "best_found": found,
        "processor_seconds": round(mean(seconds), 2),
    }


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--seeds", type=int, default=3, help="instances of 330 tasks of each kind")
    parser.add_argument("--small-seeds", type=int, default=100, help="instances of 9 tasks of each kind")
    parser.add_argument("--starts", type=int, default=20, help="greedy tours that 2-opt improves")
    given = parser.parse_args()
    results = {
        "command": f"python scripts/compare_tours.py {shlex.join(sys.argv[1:])}",
        "machine": given.machine,
        "numpy": np.__version__,
        "nine": [of_few(kind, 9, given.small_seeds) for kind in KINDS],
        "many": [of_many(kind, 330, seed, given.starts) for kind in KINDS for seed in range(given.seeds)],
    }
    with atomic_write(given.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
