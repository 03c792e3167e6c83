#!/usr/bin/env python3
"""Compare orders of tasks: 2-opt, a greedy tour, and annealing as Data-CUBE publishes it, by their distance to the optimum.

For 9 tasks the optimal tour is known. Of 330 it is not, but no tour is worth more than ``upper_bound``, so a tour
is at most so far from the optimum as it is from there.

python scripts/bench/compare_tours.py --machine "2-core Xeon 2.5 GHz" -o finetune/results/tours.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from inbedder.io.files import atomic_write
from inbedder_finetune.curriculum.task_tours import Floats, build_greedy_tour, measure_tour, order_tasks

METHODS = ("2-opt", "greedy", "annealing")
STEPS_PER_TASK = 50_000
"""Number of annealing steps per task of few tasks, which need fewer than the paper's 2 million."""
KINDS = {"uniform": 0, "cosines of 384 normal numbers": 384, "cosines of 8 normal numbers": 8}


def sample_similarity(tasks: int, seed: int, width: int = 0) -> Floats:
    """Similarities of drawn tasks: uniform in [0, 1] for a width of 0, otherwise cosines of normal vectors of that width."""
    draw = np.random.default_rng(seed)
    if not width:
        upper = np.triu(draw.random((tasks, tasks)), 1)
        return upper + upper.T
    vectors = draw.normal(size=(tasks, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors @ vectors.T


def of_all(similarity: Floats) -> float:
    """Compute the value of the optimal tour."""
    inner = itertools.permutations(range(1, len(similarity)))
    tours = np.array([(0, *tour) for tour in inner if tour[0] < tour[-1]])
    return float(similarity[tours, np.roll(tours, -1, axis=1)].sum(axis=1).max())


def compute_upper_bound(similarity: Floats, rounds: int = 400) -> float:
    """Compute the Held-Karp upper bound on a tour's value.

    A tour is a spanning tree of all tasks but one, with two edges of that one, so it is worth no more than the best such 1-tree.
    Adding a number to all edges of a task moves all tours alike and 1-trees by how many edges the task has in them; the numbers
    are moved against those with more than two.
    """
    tasks = len(similarity)
    shifts, smallest_bound, step = np.zeros(tasks), np.inf, float(similarity.std())
    for _ in range(rounds):
        shifted = similarity + shifts[:, None] + shifts
        costs = shifted[1:, 1:].max() + 1 - shifted[1:, 1:]  # above 0, as scipy takes 0 for no edge
        first, second = minimum_spanning_tree(np.triu(costs, 1)).nonzero()
        ends = np.sort(np.argsort(-shifted[0, 1:])[:2]) + 1
        edges = np.concatenate([np.stack([first + 1, second + 1], axis=1), [[0, end] for end in ends]])
        smallest_bound = min(smallest_bound, float(shifted[edges[:, 0], edges[:, 1]].sum() - 2 * shifts.sum()))
        degrees = np.bincount(edges.ravel(), minlength=tasks)
        shifts -= step * (degrees - 2)
        step *= 0.98
    return smallest_bound


def time_tour(similarity: Floats, make_tour: Callable[[], Sequence[int]]) -> dict[str, float]:
    """What a way's tour is worth, and what it took."""
    wall, processor = time.perf_counter(), time.process_time()
    tour = make_tour()
    times = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
    return {"similarity": round(measure_tour(similarity, tour), 4)} | {name: round(value, 2) for name, value in times.items()}


def of_many(kind: str, tasks: int, seed: int) -> dict[str, object]:
    """Compare the ways on one sampled instance."""
    similarity = sample_similarity(tasks, seed, KINDS[kind])
    ways: dict[str, Callable[[], Sequence[int]]] = {
        "2-opt": lambda: order_tasks(similarity, seed=seed),
        "greedy": lambda: build_greedy_tour(similarity, 0),
        "annealing": lambda: order_tasks(similarity, method="annealing", seed=seed),
    }
    cells = {name: time_tour(similarity, make_tour) for name, make_tour in ways.items()}
    bound = compute_upper_bound(similarity)
    for cell in cells.values():
        cell["share_of_2_opt"] = round(cell["similarity"] / cells["2-opt"]["similarity"], 4)
        cell["share_of_bound"] = round(cell["similarity"] / bound, 4)
    return {"similarities": kind, "tasks": tasks, "seed": seed, "bound": round(bound, 4), "methods": cells}


def of_few(kind: str, tasks: int, seeds: int) -> dict[str, object]:
    """How often each way finds the optimal tour, and the total value of its tours as a share of the optimum."""
    worth: dict[str, list[float]] = {method: [] for method in METHODS}
    best = []
    for seed in range(seeds):
        similarity = sample_similarity(tasks, seed, KINDS[kind])
        best.append(of_all(similarity))
        for method, values in worth.items():
            if method == "greedy":
                tour = build_greedy_tour(similarity)
            else:
                tour = order_tasks(similarity, method=method, steps=STEPS_PER_TASK * tasks, seed=seed)
            values.append(measure_tour(similarity, tour))
    wins = {method: sum(np.array(values) > np.array(best) - 1e-9) for method, values in worth.items()}
    return {
        "similarities": kind,
        "tasks": tasks,
        "seeds": seeds,
        "best_tours": {method: int(count) for method, count in wins.items()},
        "share_of_best": {method: round(sum(values) / sum(best), 4) for method, values in worth.items()},
    }


def make_table(results: Mapping[str, Any]) -> str:
    """The distances to the optimum as Markdown: of 9 tasks to the best tour, of 330 at most, to the bound; in percent.

    Args:
        results: What ``tours.json`` holds.

    Returns:
        Lines, a row per kind of similarities.
    """
    heads = [f"{method}, {tasks} tasks" for tasks in ("9", "330") for method in METHODS]
    lines = ["| similarities | " + " | ".join(heads) + " |", "| --- |" + " --: |" * len(heads)]
    for few in results["nine_tasks"]:
        many = [cell for cell in results["many_tasks"] if cell["similarities"] == few["similarities"]]
        shares = [few["share_of_best"][method] for method in METHODS]
        shares += [float(np.mean([cell["methods"][method]["share_of_bound"] for cell in many])) for method in METHODS]
        lines.append(f"| {few['similarities']} | " + " | ".join(f"{100 * (1 - share):.1f}" for share in shares) + " |")
    return "\n".join(lines)


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--seeds", type=int, default=3, help="instances of 330 tasks of each kind")
    parser.add_argument("--small-seeds", type=int, default=30, help="instances of 9 tasks of each kind")
    options = parser.parse_args()
    results = {
        "command": f"python scripts/bench/compare_tours.py {shlex.join(sys.argv[1:])}",
        "machine": options.machine,
        "numpy": np.__version__,
        "nine_tasks": [of_few(kind, 9, options.small_seeds) for kind in KINDS],
        "many_tasks": [of_many(kind, 330, seed) for kind in KINDS for seed in range(options.seeds)],
    }
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(make_table(results))


if __name__ == "__main__":
    main()
