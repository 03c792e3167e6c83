#!/usr/bin/env python3
"""Groups whose centres are answers, so that each group has its name by construction (k-NLPmeans), against k-means.

python scripts/bench/measure_answer_centres.py DATA --cache kept -o evaluation/results/answer_centres.json

Under the question that asks for each set's label, k is the number of labels. Every ROUNDS rounds of k-means each centre is
replaced by the vector of the commonest answer of its group that no larger group has (a text that is this answer, under the same
question), or of the answer nearest to the centre; the last groups are those of the answers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from labelled_sets import LabelledSet, measure_sets, write_results
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from inbedder import InBedder
from inbedder.grouping.partition.group_distances import find_nearest_centres
from inbedder.vectors.vectors import Vectors, normalize_vectors

LIMIT, ROUNDS, REPLACEMENTS = 1000, 3, 4


def choose_answers(answers: list[str], labels: NDArray[Any], k: int) -> list[str]:
    """The commonest answer of each group that no larger group has; "" for a group without one of its own."""
    group_answers = [""] * k
    for number in np.argsort(-np.bincount(labels, minlength=k)):
        counts = Counter(answers[row] for row in np.flatnonzero(labels == number) if answers[row])
        group_answers[number] = next((answer for answer, _ in counts.most_common() if answer not in group_answers), "")
    return group_answers


def measure(labelled: LabelledSet, model: InBedder) -> dict[str, Any]:
    """V-measure of k-means and of groups around answers."""
    vectors = normalize_vectors(model.encode(labelled.texts, labelled.instruction))
    answers = [" ".join(str(answer).lower().split()) for answer in model.answer(labelled.texts, labelled.instruction)]
    k = len(set(labelled.labels))
    plain = KMeans(n_clusters=k, n_init=10, random_state=0).fit(vectors)
    result: dict[str, Any] = {"set": labelled.name, "rows": len(vectors), "labels": k}
    result["k-means"] = round(100 * float(v_measure_score(labelled.labels, plain.labels_)), 1)
    for kind in ("commonest", "nearest"):
        labels, centres = plain.labels_, plain.cluster_centers_
        for _ in range(REPLACEMENTS):
            centres = _replace_centres(model, labelled.instruction, vectors, answers, labels, centres, kind)
            labels = find_nearest_centres(vectors, centres)[0]
            groups = KMeans(n_clusters=k, init=centres, n_init=1, max_iter=ROUNDS).fit(vectors)
            labels, centres = groups.labels_, groups.cluster_centers_
        centres = _replace_centres(model, labelled.instruction, vectors, answers, labels, centres, kind)
        labels = find_nearest_centres(vectors, centres)[0]
        result[f"{kind} answer"] = round(100 * float(v_measure_score(labelled.labels, labels)), 1)
        result[f"{kind} answer, groups"] = len(np.unique(labels))
    return result


def _replace_centres(
    model: InBedder, question: str, vectors: Vectors, answers: list[str], labels: NDArray[Any], centres: Vectors, kind: str
) -> Vectors:
    """The vector of one answer per group; a group without an answer of its own keeps its centre."""
    if kind == "commonest":
        group_answers = choose_answers(answers, labels, len(centres))
    else:
        distinct = sorted({answer for answer in answers if answer})
        answer_vectors = normalize_vectors(model.encode(distinct, question))
        group_answers = [
            distinct[row] for row in (normalize_vectors(centres.astype(np.float32)) @ answer_vectors.T).argmax(axis=1)
        ]
    new_vectors = normalize_vectors(model.encode([answer or "-" for answer in group_answers], question))
    return np.where([[bool(answer)] for answer in group_answers], new_vectors, centres).astype(np.float32)


def main() -> None:
    """Measure and write."""
    output, head, sets = measure_sets(str(__doc__), LIMIT, measure)
    names = ("k-means", "commonest answer", "nearest answer")
    means = {name: round(float(np.mean([results[name] for results in sets])), 1) for name in names}
    write_results(output, {**head, "v_measure": means, "sets": sets})


if __name__ == "__main__":
    main()
