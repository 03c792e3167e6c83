#!/usr/bin/env python3
"""Kept groupings on every labelled set: the first half grouped and kept, the second half assigned; and a label held out wholly.

python scripts/bench/measure_keeping.py DATA --cache kept -o evaluation/results/keeping.json

Three seeds choose the halves; there are as many groups as labels (at most 50). "v_measure_assigned" is the V-measure of the
second half as assigned, "v_measure_at_once" that of the same rows where all rows are grouped at once. Then each of the three most
frequent labels is new: its rows come with the second half only. The AUROC of the distance tells how well they are found, and
``update`` how many groups are added and which share of their texts has that label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np
from labelled_sets import LabelledSet, measure_sets, write_results
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, v_measure_score

from inbedder import Grouping, InBedder, cluster
from inbedder.grouping.partition.partition import group
from inbedder.vectors.vectors import Vectors

LIMIT, SEEDS, HELD_OUT, FEWEST_ROWS, MOST_GROUPS, WITHIN = 1000, 3, 3, 20, 50, 3.0
Rows = NDArray[np.intp]


def make_grouping(labelled: LabelledSet, vectors: Vectors, rows: Rows, k: int, model: InBedder) -> Grouping:
    """A grouping of some rows."""
    texts = [labelled.texts[row] for row in rows]
    return Grouping.of(cluster(texts, labelled.instruction, model, k=k, embeddings=vectors[rows]), model)


def measure_assigned(labelled: LabelledSet, vectors: Vectors, seed: int, model: InBedder) -> tuple[float, float]:
    """V-measures of the second half, in percent."""
    first, second = np.array_split(np.random.default_rng(seed).permutation(len(vectors)), 2)
    k = min(len(set(labelled.labels)), MOST_GROUPS)
    texts, labels = [labelled.texts[row] for row in second], [labelled.labels[row] for row in second]
    assigned = make_grouping(labelled, vectors, first, k, model).assign(texts, embeddings=vectors[second]).labels
    at_once = group(vectors, k, seed)[second]
    return tuple(100 * float(v_measure_score(labels, results)) for results in (assigned, at_once))  # type: ignore[return-value]


def measure_held_out(labelled: LabelledSet, vectors: Vectors, label: str | None, model: InBedder) -> dict[str, Any]:
    """Measure recall of a label held out of the saved groups; with None, the false additions."""
    first, second = np.array_split(np.random.default_rng(0).permutation(len(vectors)), 2)
    new = np.array([row_label == label for row_label in labelled.labels])
    k = min(len(set(labelled.labels)) - (label is not None), MOST_GROUPS)
    grouping = make_grouping(labelled, vectors, first[~new[first]], k, model)
    rows = np.concatenate([second[~new[second]], np.flatnonzero(new)])
    texts = [labelled.texts[row] for row in rows]
    before = grouping.assign(texts, embeddings=vectors[rows])
    after = grouping.update(texts, embeddings=vectors[rows])
    added = after.labels >= k
    return {
        "label": label,
        "auroc": None if label is None else float(roc_auc_score(new[rows], before.distances)),
        "share_wrongly_unassigned": float((~before.fits[~new[rows]]).mean()),
        "added_groups": len(grouping.groups) - k,
        "share_of_label": float(new[rows][added].mean()) if added.any() and label is not None else None,
    }


def measure(labelled: LabelledSet, model: InBedder) -> dict[str, Any]:
    """One set."""
    vectors = model.encode(labelled.texts, labelled.instruction)
    halves = [measure_assigned(labelled, vectors, seed, model) for seed in range(SEEDS)]
    counts = Counter(labelled.labels)
    labels = [label for label, count in counts.most_common(HELD_OUT) if count >= FEWEST_ROWS] if len(counts) > 2 else []
    results = [measure_held_out(labelled, vectors, label, model) for label in labels]
    nothing_new = measure_held_out(labelled, vectors, None, model)
    return {
        "set": labelled.name,
        "labels": len(counts),
        "v_measure_assigned": round(mean(assigned for assigned, _ in halves), 1),
        "v_measure_at_once": round(mean(at_once for _, at_once in halves), 1),
        "auroc": round(mean(each["auroc"] for each in results), 3) if results else None,
        "new_labels": [
            {"auroc": round(each["auroc"], 3), "added_groups": each["added_groups"], **_share(each)} for each in results
        ],
        "share_wrongly_unassigned": round(nothing_new["share_wrongly_unassigned"], 3),
        "added_groups_without_new_label": nothing_new["added_groups"],
    }


def _share(results: dict[str, Any]) -> dict[str, float]:
    return {} if results["share_of_label"] is None else {"share_of_label": round(results["share_of_label"], 3)}


def summarize(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many sets reach what they should."""
    differences = [results["v_measure_assigned"] - results["v_measure_at_once"] for results in sets]
    scored = [results for results in sets if results["auroc"] is not None]
    added = [each["share_of_label"] for results in sets for each in results["new_labels"] if "share_of_label" in each]
    return {
        "mean_difference": round(mean(differences), 2),
        "sets_within_3_points": sum(difference >= -WITHIN for difference in differences),
        "sets": len(sets),
        "sets_with_auroc_of_0.8": [results["set"] for results in scored if results["auroc"] >= 0.8],
        "share_wrongly_unassigned": round(mean(results["share_wrongly_unassigned"] for results in sets), 3),
        "new_labels": sum(len(results["new_labels"]) for results in sets),
        "new_labels_with_groups": len(added),
        "share_of_label_in_added_groups": round(mean(added), 3) if added else None,
        "added_groups_without_new_label": sum(results["added_groups_without_new_label"] for results in sets),
    }


def make_table(sets: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One row per set, the header first."""
    rows = [["set", "labels", "V assigned", "V at once", "AUROC of a label held out", "groups added", "of the label"]]
    for results in sets:
        shares = [each["share_of_label"] for each in results["new_labels"] if "share_of_label" in each]
        added = ", ".join(str(each["added_groups"]) for each in results["new_labels"])
        rows.append([results["set"], str(results["labels"])])
        rows[-1] += [f"{results[key]:.1f}" for key in ("v_measure_assigned", "v_measure_at_once")]
        rows[-1] += [
            "" if results["auroc"] is None else f"{results['auroc']:.2f}",
            added,
            f"{100 * mean(shares):.0f}%" if shares else "",
        ]
    return rows


def main() -> None:
    """Measure and write."""
    output, head, sets = measure_sets(str(__doc__), LIMIT, measure)
    head["description"] += f", {SEEDS} seeds"
    results = {
        **head,
        "summary": summarize(sets),
        "table": make_table(sets),
        "sets": sets,
    }
    write_results(output, results)


if __name__ == "__main__":
    main()
