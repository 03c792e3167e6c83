"""Compare criteria for the number of groups on labelled sets.

Each criterion chooses a number of k-means groups from 2 to 50 on at most 1,000 rows of each set, under the question that asks
for its label. The results are the mean absolute difference of log k and the log of the number of labels, the V-measure at the
chosen k, and the V-measure at the number of labels.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score, pairwise_distances, silhouette_score, v_measure_score

from inbedder import InBedder
from inbedder.grouping.partition.group_distances import find_nearest_centres
from inbedder.grouping.partition.number_of_groups import CANDIDATE_NUMBERS, CLEAR_SILHOUETTE, choose_number
from inbedder.vectors.vectors import Vectors, normalize_vectors
from scripts.bench.grouping.labelled_sets import LabelledSet, load_labelled_sets

LIMIT, PAIRS_OF_HALVES = 1000, 5
TOLERANCE, MAX_GROUPS_BEFORE = 0.02, 12
"""Of the rule before: silhouettes within this of the best, up to this number of groups."""
MIN_COMMON_SHARE = 0.02
"""Share of the texts from which an answer is common."""
FEW_LABELS = 25
"""Maximum number of labels that a reader could name."""
PARTS = (2, 3)
"""Numbers of parts of a set that are grouped by themselves."""
MAX_JUMP = 1.5
"""Maximum factor between the numbers of groups of a set and of its part."""
Curve = list[float]
Draws = list[list[float]]
BEFORE = "silhouette and Davies-Bouldin"
CHOSEN = f"{BEFORE}, each the largest within noise, 5 to 20 where flat"
CRITERIA = ("silhouette", "Davies-Bouldin")


def compute_curves(vectors: Vectors) -> tuple[dict[str, Curve], dict[str, Draws], dict[int, NDArray[np.int64]]]:
    """Compute every criterion for each k, on all rows and on random halves."""
    distances, draw = pairwise_distances(vectors), np.random.default_rng(0)
    pairs = [np.array_split(draw.permutation(len(vectors)), 2) for _ in range(PAIRS_OF_HALVES)]
    curves: dict[str, Curve] = {name: [] for name in CRITERIA}
    draws: dict[str, Draws] = {name: [] for name in (*CRITERIA, "agreement of halves")}
    groups = {}
    for k in CANDIDATE_NUMBERS:
        labels = KMeans(n_clusters=k, n_init=3, random_state=0).fit_predict(vectors)
        groups[k] = labels
        for name, value in zip(CRITERIA, _compute_criteria(vectors, distances, labels), strict=True):
            curves[name].append(value)
        values = [_compare_halves(vectors, distances, halves, k) for halves in pairs]
        draws["agreement of halves"].append([agreement for agreement, _ in values])
        for number, name in enumerate(CRITERIA):
            draws[name].append([criteria[number] for _, half_criteria in values for criteria in half_criteria])
    return curves, draws, groups


def _compute_criteria(vectors: Vectors, distances: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    silhouette = float(silhouette_score(distances, labels, metric="precomputed"))
    return silhouette, -float(davies_bouldin_score(vectors, labels))


def _compare_halves(
    vectors: Vectors, distances: NDArray[Any], halves: Sequence[NDArray[Any]], k: int
) -> tuple[float, list[tuple[float, float]]]:
    """Compare two groupings of all rows by the centres of each half: the adjusted Rand index, and the criteria of each half."""
    labels, criteria = [], []
    for seed, rows in enumerate(halves):
        model = KMeans(n_clusters=k, n_init=1, random_state=seed).fit(vectors[rows])
        criteria.append(_compute_criteria(vectors[rows], distances[np.ix_(rows, rows)], model.labels_))
        labels.append(find_nearest_centres(vectors, model.cluster_centers_)[0])
    return float(adjusted_rand_score(*labels)), criteria


def count_distinct_answers(answers: Sequence[str]) -> int:
    """Count the effective number of answers: the inverse of the probability that two texts have the same answer."""
    counts = np.array(list(Counter(" ".join(answer.lower().split()) for answer in answers).values()))
    return _find_nearest_number(1 / ((counts / counts.sum()) ** 2).sum())


def count_common_answers(answers: Sequence[str]) -> int:
    """Count the distinct answers that at least one text in fifty has."""
    counts = Counter(" ".join(answer.lower().split()) for answer in answers if answer.strip())
    return max(2, sum(count >= MIN_COMMON_SHARE * len(answers) for count in counts.values()))


def _find_nearest_number(target: float) -> int:
    return min(CANDIDATE_NUMBERS, key=lambda k: abs(np.log(k / target)))


def find_best(curve: Curve) -> int:
    """Find the number with the largest value."""
    return CANDIDATE_NUMBERS[int(np.argmax(curve))]


def find_smallest(draws: Draws) -> int:
    """Find the smallest number whose mean over the draws is within one standard error of the best."""
    means, best = [mean(values) for values in draws], int(np.argmax([mean(values) for values in draws]))
    error = float(np.std(draws[best], ddof=1)) / len(draws[best]) ** 0.5
    return next(k for k, value in zip(CANDIDATE_NUMBERS, means, strict=True) if value >= means[best] - error)


def find_before(curve: Curve) -> int:
    """Apply the rule before: of 2 to 12 groups the largest number within 0.02 of the best silhouette."""
    points = [(k, value) for k, value in zip(CANDIDATE_NUMBERS, curve, strict=True) if k <= MAX_GROUPS_BEFORE]
    return max(k for k, value in points if value >= max(value for _, value in points) - TOLERANCE)


def measure_set(labelled: LabelledSet, model: InBedder) -> dict[str, Any]:
    """Apply every criterion to one set."""
    vectors = normalize_vectors(model.encode(labelled.texts, labelled.instruction))
    curves, draws, groups = compute_curves(vectors)
    all_answers = [str(answer) for answer in model.answer(labelled.texts, labelled.instruction)]
    answers, common = count_distinct_answers(all_answers), count_common_answers(all_answers)
    choice = choose_number(vectors)
    stable, smallest = find_smallest(draws["agreement of halves"]), [find_smallest(draws[name]) for name in CRITERIA]
    is_flat = choice.silhouette < CLEAR_SILHOUETTE
    geometric: Callable[..., int] = lambda *numbers: _find_nearest_number(float(np.exp(np.mean(np.log(numbers)))))  # noqa: E731
    before = geometric(*(find_best(curve) for curve in curves.values()))
    choices = {
        "silhouette, 2 to 12": find_before(curves["silhouette"]),
        **{name: find_best(curve) for name, curve in curves.items()},
        "agreement of halves": find_best([mean(values) for values in draws["agreement of halves"]]),
        "agreement of halves, smallest within noise": stable,
        "distinct answers": answers,
        "silhouette and distinct answers": geometric(find_best(curves["silhouette"]), answers),
        BEFORE: before,
        CHOSEN: choice.k,
        f"{BEFORE}, each the smallest within noise": geometric(*smallest),
        f"{BEFORE}; where flat, the smallest within the noise of agreement": stable if is_flat else before,
        f"{BEFORE}, at most the common answers": min(before, common),
    }
    true = len(set(labelled.labels))
    for k in {*choices.values(), true} - set(groups):
        groups[k] = KMeans(n_clusters=k, n_init=3, random_state=0).fit_predict(vectors)
    worth = {k: 100 * float(v_measure_score(labelled.labels, results)) for k, results in groups.items()}
    return {
        "set": labelled.name,
        "rows": len(vectors),
        "labels": true,
        "v_measure_at_labels": round(worth[true], 1),
        "confidence": choice.confidence,
        "silhouette": round(choice.silhouette, 3),
        "of_parts": choose_for_parts(vectors),
        "choices": {name: {"k": k, "v_measure": round(worth[k], 1)} for name, k in choices.items()},
    }


def choose_for_parts(vectors: Vectors) -> list[int]:
    """Choose the number of groups of the halves and of the thirds of the rows."""
    rows = np.random.default_rng(1).permutation(len(vectors))
    return [choose_number(vectors[np.sort(part)]).k for count in PARTS for part in np.array_split(rows, count)]


def measure_jumps(sets: Sequence[dict[str, Any]]) -> float:
    """Measure the share of parts whose number of groups is within a factor of 1.5 of their set's."""
    ratios = [part / results["choices"][CHOSEN]["k"] for results in sets for part in results["of_parts"]]
    return round(mean(1 / MAX_JUMP <= ratio <= MAX_JUMP for ratio in ratios), 2)


def summarize(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the criteria over all sets, the best first, and the chosen criterion by its confidence."""

    def compute_error(results: dict[str, Any], name: str) -> float:
        return abs(float(np.log(results["choices"][name]["k"] / results["labels"])))

    few = [results for results in sets if results["labels"] <= FEW_LABELS]
    criteria = {
        name: {
            "error_in_log_k": round(mean(compute_error(results, name) for results in sets), 3),
            "error_up_to_25_labels": round(mean(compute_error(results, name) for results in few), 3),
            "within_factor_2": sum(compute_error(results, name) <= float(np.log(2)) + 1e-9 for results in few),
            "v_measure": round(mean(results["choices"][name]["v_measure"] for results in sets), 1),
        }
        for name in sets[0]["choices"]
    }
    left_out = []
    for results in sets:
        other_sets = [each for each in sets if each is not results]
        best = min(criteria, key=lambda name: mean(compute_error(each, name) for each in other_sets))
        left_out.append({"error_in_log_k": compute_error(results, best), "v_measure": results["choices"][best]["v_measure"]})
    by_confidence = {}
    for confidence in ("high", "low"):
        errors = [compute_error(results, CHOSEN) for results in sets if results["confidence"] == confidence]
        by_confidence[confidence] = {"sets": len(errors), "error_in_log_k": round(mean(errors), 3) if errors else None}
    return {
        "criteria": dict(sorted(criteria.items(), key=lambda entry: entry[1]["error_in_log_k"])),
        "best_on_the_other_sets": {key: round(mean(each[key] for each in left_out), 3) for key in left_out[0]},
        "v_measure_at_labels": round(mean(results["v_measure_at_labels"] for results in sets), 1),
        "by_confidence": by_confidence,
        "sets_up_to_25_labels": len(few),
        "parts_within_factor_1.5": measure_jumps(sets),
    }


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure every labelled set.

    Args:
        model: The model.
        data: The folder of the evaluation sets.

    Returns:
        Criteria and sets.
    """
    sets = []
    for labelled in load_labelled_sets(data, LIMIT):
        sets.append(measure_set(labelled, model))
        print(json.dumps(sets[-1]), flush=True)
    return {"rows_per_set": LIMIT, "k": [CANDIDATE_NUMBERS[0], CANDIDATE_NUMBERS[-1]], **summarize(sets), "sets": sets}
