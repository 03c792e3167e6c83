#!/usr/bin/env python3
"""Criteria for the number of groups, on every labelled set: how far from the number of labels, and what the groups are worth.

python scripts/bench/measure_counts.py DATA --cache kept -o evaluation/results/counts.json

Each criterion chooses a number of k-means groups from 2 to 50 on at most 1,000 rows of each set, under the question that asks for
its label. Of what it chooses: the mean absolute difference of log k to the log of the number of labels, the V-measure that is
reached, and the V-measure at the number of labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np
from labelled_sets import LabelledSet, measure_sets, write_results
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score, pairwise_distances, silhouette_score, v_measure_score

from inbedder import InBedder
from inbedder.grouping.group_distances import find_nearest_centres
from inbedder.grouping.number_of_groups import CANDIDATE_NUMBERS, choose_number
from inbedder.vectors import Vectors, normalize_vectors

LIMIT, PAIRS_OF_HALVES, ALIKE, MOST_BEFORE = 1000, 3, 0.02, 12
Curve = list[float]
CHOSEN = "silhouette and Davies-Bouldin"


def compute_curves(vectors: Vectors) -> tuple[dict[str, Curve], dict[int, NDArray[np.int64]]]:
    """What each criterion says of each number, and the groups."""
    distances, draw = pairwise_distances(vectors), np.random.default_rng(0)
    halves = [np.array_split(draw.permutation(len(vectors)), 2) for _ in range(PAIRS_OF_HALVES)]
    results: dict[str, Curve] = {"silhouette": [], "Davies-Bouldin": [], "agreement of halves": []}
    groups = {}
    for k in CANDIDATE_NUMBERS:
        labels = KMeans(n_clusters=k, n_init=3, random_state=0).fit_predict(vectors)
        groups[k] = labels
        results["silhouette"].append(float(silhouette_score(distances, labels, metric="precomputed")))
        results["Davies-Bouldin"].append(-float(davies_bouldin_score(vectors, labels)))
        results["agreement of halves"].append(mean(_compute_agreement(vectors, pair, k) for pair in halves))
    return results, groups


def _compute_agreement(vectors: Vectors, halves: Sequence[NDArray[Any]], k: int) -> float:
    """Adjusted Rand index of two groupings of all rows, by the centres of each half."""
    labels = []
    for seed, rows in enumerate(halves):
        centres = KMeans(n_clusters=k, n_init=1, random_state=seed).fit(vectors[rows]).cluster_centers_
        labels.append(find_nearest_centres(vectors, centres)[0])
    return float(adjusted_rand_score(*labels))


def count_distinct_answers(answers: Sequence[str]) -> int:
    """How many answers there would be if all were equally frequent: one over the chance that two are the same."""
    counts = np.array(list(Counter(" ".join(answer.lower().split()) for answer in answers).values()))
    return _find_nearest_number(1 / ((counts / counts.sum()) ** 2).sum())


def _find_nearest_number(target: float) -> int:
    return min(CANDIDATE_NUMBERS, key=lambda k: abs(np.log(k / target)))


def find_best(curve: Curve) -> int:
    """The number with the largest value."""
    return CANDIDATE_NUMBERS[int(np.argmax(curve))]


def find_before(curve: Curve) -> int:
    """What was done before: of 2 to 12 the most groups within 0.02 of the best silhouette."""
    points = [(k, value) for k, value in zip(CANDIDATE_NUMBERS, curve, strict=True) if k <= MOST_BEFORE]
    return max(k for k, value in points if value >= max(value for _, value in points) - ALIKE)


def measure(labelled: LabelledSet, model: InBedder) -> dict[str, Any]:
    """Choices of every criterion on one set."""
    vectors = normalize_vectors(model.encode(labelled.texts, labelled.instruction))
    curves, groups = compute_curves(vectors)
    answers = count_distinct_answers([str(answer) for answer in model.answer(labelled.texts, labelled.instruction)])
    choice = choose_number(vectors)
    geometric: Callable[..., int] = lambda *numbers: _find_nearest_number(float(np.exp(np.mean(np.log(numbers)))))  # noqa: E731
    choices = {
        "silhouette, 2 to 12": find_before(curves["silhouette"]),
        **{name: find_best(curve) for name, curve in curves.items()},
        "distinct answers": answers,
        "silhouette and distinct answers": geometric(find_best(curves["silhouette"]), answers),
        CHOSEN: choice.k,
    }
    true = len(set(labelled.labels))
    for k in {choice.k, true} - set(groups):
        groups[k] = KMeans(n_clusters=k, n_init=3, random_state=0).fit_predict(vectors)
    worth = {k: 100 * float(v_measure_score(labelled.labels, results)) for k, results in groups.items()}
    return {
        "set": labelled.name,
        "rows": len(vectors),
        "labels": true,
        "v_measure_at_labels": round(worth[true], 1),
        "confidence": choice.confidence,
        "silhouette": round(choice.silhouette, 3),
        "choices": {name: {"k": k, "v_measure": round(worth[k], 1)} for name, k in choices.items()},
    }


def summarize(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each criterion over all sets, the best first; and the chosen one by its confidence."""

    def compute_error(results: dict[str, Any], name: str) -> float:
        return abs(float(np.log(results["choices"][name]["k"] / results["labels"])))

    criteria = {
        name: {
            "error_in_log_k": round(mean(compute_error(results, name) for results in sets), 3),
            "v_measure": round(mean(results["choices"][name]["v_measure"] for results in sets), 1),
        }
        for name in sets[0]["choices"]
    }
    by_confidence = {}
    for confidence in ("high", "low"):
        errors = [compute_error(results, CHOSEN) for results in sets if results["confidence"] == confidence]
        by_confidence[confidence] = {"sets": len(errors), "error_in_log_k": round(mean(errors), 3) if errors else None}
    return {
        "criteria": dict(sorted(criteria.items(), key=lambda entry: entry[1]["error_in_log_k"])),
        "v_measure_at_labels": round(mean(results["v_measure_at_labels"] for results in sets), 1),
        "by_confidence": by_confidence,
    }


def make_table(results: dict[str, Any]) -> list[list[str]]:
    """One row per criterion, the header first."""
    rows = [["criterion", "mean absolute error in log k", "V-measure reached"]]
    for name, scores in results["criteria"].items():
        rows.append([name, f"{scores['error_in_log_k']:.2f}", f"{scores['v_measure']:.1f}"])
    return [*rows, ["the number of labels", "0", f"{results['v_measure_at_labels']:.1f}"]]


def main() -> None:
    """Measure and write."""
    output, head, sets = measure_sets(str(__doc__), LIMIT, measure)
    head["description"] += f", k from {CANDIDATE_NUMBERS[0]} to {CANDIDATE_NUMBERS[-1]}"
    results = {
        **head,
        **(results := summarize(sets)),
        "table": make_table(results),
        "sets": sets,
    }
    write_results(output, results)


if __name__ == "__main__":
    main()
