#!/usr/bin/env python3
"""Compare orders of tasks: 2-opt, a greedy tour, the paper's annealing, and the best there is of 9.

python scripts/compare_tours.py --machine "2-core Xeon 2.5 GHz" -o finetune/results/tours.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from finetune.curriculum.tours import Floats, greedy_tour, order_tasks, tour_similarity
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


def timed(similarity: Floats, made: Callable[[], Sequence[int]]) -> dict[str, float]:
    """What a way's tour is worth, and what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    tour = made()
    took = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
    return {"similarity": round(tour_similarity(similarity, tour), 4)} | {name: round(value, 2) for name, value in took.items()}


def of_many(kind: str, tasks: int, seed: int) -> dict[str, object]:
    """The ways beside each other on one drawn instance."""
    similarity = drawn(tasks, seed, KINDS[kind])
    ways: dict[str, Callable[[], Sequence[int]]] = {
        "2-opt": lambda: order_tasks(similarity, seed=seed),
        "greedy": lambda: greedy_tour(similarity, 0),
        "annealing": lambda: order_tasks(similarity, method="annealing", seed=seed),
    }
    cells = {name: timed(similarity, made) for name, made in ways.items()}
    for cell in cells.values():
        cell["of_2_opt"] = round(cell["similarity"] / cells["2-opt"]["similarity"], 4)
    return {"similarities": kind, "tasks": tasks, "seed": seed, "ways": cells}


def of_few(kind: str, tasks: int, seeds: int) -> dict[str, object]:
    """How often each search finds the best of all tours."""
    found = dict.fromkeys(("2-opt", "annealing"), 0)
    for seed in range(seeds):
        similarity = drawn(tasks, seed, KINDS[kind])
        best = of_all(similarity)
        for method in found:
            found[method] += tour_similarity(similarity, order_tasks(similarity, method=method, seed=seed)) > best - 1e-9
    return {"similarities": kind, "tasks": tasks, "seeds": seeds, "best_found": found}


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--seeds", type=int, default=3, help="instances of 330 tasks of each kind")
    parser.add_argument("--small-seeds", type=int, default=30, help="instances of 9 tasks of each kind")
    given = parser.parse_args()
    results = {
        "command": f"python scripts/compare_tours.py {shlex.join(sys.argv[1:])}",
        "machine": given.machine,
        "numpy": np.__version__,
        "nine": [of_few(kind, 9, given.small_seeds) for kind in KINDS],
        "many": [of_many(kind, 330, seed) for kind in KINDS for seed in range(given.seeds)],
    }
    with atomic_write(given.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
