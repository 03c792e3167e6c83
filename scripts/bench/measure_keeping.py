#!/usr/bin/env python3
"""Kept groupings on every labelled set: the first half grouped and kept, the second half assigned; and a label held out wholly.

python scripts/bench/measure_keeping.py DATA --cache kept -o evaluation/results/keeping.json

Halves are drawn by three seeds, and there are as many groups as labels (at most 50). "assigned" is the V-measure of the second
half as it was assigned, "at once" that of the same rows where all rows are grouped at once. Then each of the three most frequent
labels is held out of the first half and its rows come with the second: the AUROC of the distance tells how well they are found,
and ``update`` shows how many groups are added, and which share of their texts is of that label.
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
from inbedder.grouping.partition import group
from inbedder.vectors import Vectors

LIMIT, SEEDS, HELD_OUT, FEWEST_ROWS, MOST_GROUPS, WITHIN = 1000, 3, 3, 20, 50, 3.0
Rows = NDArray[np.intp]


def kept(labelled: LabelledSet, vectors: Vectors, rows: Rows, k: int, model: InBedder) -> Grouping:
    """A grouping of some rows."""
    texts = [labelled.texts[row] for row in rows]
    return Grouping.of(cluster(texts, labelled.instruction, model, k=k, embeddings=vectors[rows]), model)


def assigned_and_at_once(labelled: LabelledSet, vectors: Vectors, seed: int, model: InBedder) -> tuple[float, float]:
    """V-measures of the second half, in percent."""
    first, second = np.array_split(np.random.default_rng(seed).permutation(len(vectors)), 2)
    k = min(len(set(labelled.labels)), MOST_GROUPS)
    texts, labels = [labelled.texts[row] for row in second], [labelled.labels[row] for row in second]
    assigned = kept(labelled, vectors, first, k, model).assign(texts, embeddings=vectors[second]).labels
    at_once = group(vectors, k, seed)[second]
    return tuple(100 * float(v_measure_score(labels, found)) for found in (assigned, at_once))  # type: ignore[return-value]


def held_out(labelled: LabelledSet, vectors: Vectors, label: str | None, model: InBedder) -> dict[str, Any]:
    """What is found of a label that the kept groups know nothing of; with None, what is added where nothing is new."""
    first, second = np.array_split(np.random.default_rng(0).permutation(len(vectors)), 2)
    new = np.array([known == label for known in labelled.labels])
    k = min(len(set(labelled.labels)) - (label is not None), MOST_GROUPS)
    grouping = kept(labelled, vectors, first[~new[first]], k, model)
    rows = np.concatenate([second[~new[second]], np.flatnonzero(new)])
    texts = [labelled.texts[row] for row in rows]
    before = grouping.assign(texts, embeddings=vectors[rows])
    after = grouping.update(texts, embeddings=vectors[rows])
    added = after.labels >= k
    return {
        "label": label,
        "auroc": None if label is None else float(roc_auc_score(new[rows], before.distances)),
        "wrongly_unfitting": float((~before.fits[~new[rows]]).mean()),
        "groups_added": len(grouping.groups) - k,
        "of_the_label": float(new[rows][added].mean()) if added.any() and label is not None else None,
    }


def measure(labelled: LabelledSet, model: InBedder) -> dict[str, Any]:
    """One set."""
    vectors = model.encode(labelled.texts, labelled.instruction)
    halves = [assigned_and_at_once(labelled, vectors, seed, model) for seed in range(SEEDS)]
    counts = Counter(labelled.labels)
    labels = [label for label, count in counts.most_common(HELD_OUT) if count >= FEWEST_ROWS] if len(counts) > 2 else []
    found = [held_out(labelled, vectors, label, model) for label in labels]
    nothing_new = held_out(labelled, vectors, None, model)
    return {
        "set": labelled.name,
        "labels": len(counts),
        "assigned": round(mean(assigned for assigned, _ in halves), 1),
        "at_once": round(mean(at_once for _, at_once in halves), 1),
        "auroc": round(mean(each["auroc"] for each in found), 3) if found else None,
        "held_out": [{"auroc": round(each["auroc"], 3)} | {"added": each["groups_added"], **_share(each)} for each in found],
        "wrongly_unfitting": round(nothing_new["wrongly_unfitting"], 3),
        "added_without_news": nothing_new["groups_added"],
    }


def _share(found: dict[str, Any]) -> dict[str, float]:
    return {} if found["of_the_label"] is None else {"of_the_label": round(found["of_the_label"], 3)}


def summary(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many sets reach what they should."""
    differences = [found["assigned"] - found["at_once"] for found in sets]
    scored = [found for found in sets if found["auroc"] is not None]
    added = [each["of_the_label"] for found in sets for each in found["held_out"] if "of_the_label" in each]
    return {
        "assigned_minus_at_once": round(mean(differences), 2),
        "sets_within_3_points": sum(difference >= -WITHIN for difference in differences),
        "sets": len(sets),
        "sets_with_auroc_of_0.8": [found["set"] for found in scored if found["auroc"] >= 0.8],
        "wrongly_unfitting": round(mean(found["wrongly_unfitting"] for found in sets), 3),
        "labels_held_out": sum(len(found["held_out"]) for found in sets),
        "labels_for_which_groups_were_added": len(added),
        "share_of_the_label_in_added_groups": round(mean(added), 3) if added else None,
        "groups_added_without_news": sum(found["added_without_news"] for found in sets),
    }


def table_of(sets: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One row per set, the header first."""
    rows = [["set", "labels", "V assigned", "V at once", "AUROC of a label held out", "groups added", "of the label"]]
    for found in sets:
        shares = [each["of_the_label"] for each in found["held_out"] if "of_the_label" in each]
        added = ", ".join(str(each["added"]) for each in found["held_out"])
        rows.append([found["set"], str(found["labels"]), f"{found['assigned']:.1f}", f"{found['at_once']:.1f}"])
        rows[-1] += [
            "" if found["auroc"] is None else f"{found['auroc']:.2f}",
            added,
            f"{100 * mean(shares):.0f}%" if shares else "",
        ]
    return rows


def main() -> None:
    """Measure and write."""
    output, head, sets = measure_sets(str(__doc__), LIMIT, measure)
    head["about"] += f", {SEEDS} seeds"
    results = {
        **head,
        "summary": summary(sets),
        "table": table_of(sets),
        "sets": sets,
    }
    write_results(output, results)


if __name__ == "__main__":
    main()
