#!/usr/bin/env python3
"""Measure classification into named categories without training: accuracy, and texts that belong to no category.

    python -m scripts.bench.categories DATA --model mini --model small

``categories.yaml`` lists the sets. At most 1,000 rows of each are classified by the names of the categories, and by the names and
five examples each. Without a question the vectors are those of all-MiniLM-L6-v2, the baseline. "None of these": each category is
left out once; the area under the ROC curve of the best score of its texts and of all others, and the shares of both that the
automatic minimum leaves out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy as np
import yaml
from sklearn.metrics import roc_auc_score

from inbedder import InBedder, classify
from inbedder.classification.category_scores import find_min_score
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import Vectors
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

LIMIT, EXAMPLES, MIN_ROWS = 1000, 5, 10
"""Maximum number of rows of a set, examples per category, and minimum number of rows of a category."""
Rows = list[tuple[str, str]]


def load_set(folder: Path, settings: dict[str, Any]) -> tuple[Rows, dict[str, list[str]]]:
    """Load texts with the names of their categories, and examples by name of the category."""
    rows = _read_labelled(folder / settings["texts"], settings)
    Random(0).shuffle(rows)
    source = _read_labelled(folder / settings["examples"], settings) if "examples" in settings else rows
    if source is not rows:
        Random(0).shuffle(source)
    by_name: dict[str, list[str]] = defaultdict(list)
    for text, name in source:
        by_name[name].append(text)
    examples = {name: texts[:EXAMPLES] for name, texts in sorted(by_name.items()) if len(texts) >= MIN_ROWS}
    example_texts = {text for texts in examples.values() for text in texts}
    return [(text, name) for text, name in rows if name in examples and text not in example_texts][:LIMIT], examples


def _read_labelled(path: Path, settings: dict[str, Any]) -> Rows:
    rows: Rows = []
    for record in read_rows(str(path)):
        value = record[settings["label"]]
        labels = set(value) if isinstance(value, list) else {value}
        if len(labels) == 1 and (label := labels.pop()) and label not in settings.get("omitted", ()):
            rows.append((record["text"], settings.get("names", {}).get(label, label.replace("_", " ").lower())))
    return rows


def measure_scores(scores: Vectors, numbers: Any) -> dict[str, float]:
    """Measure the accuracy of scores, shape (n, k), and how well they detect texts of a held-out category."""
    areas, left_out, left_out_wrongly = [], [], []
    for category in range(scores.shape[1]):
        if not (is_member := numbers == category).any():
            continue
        other_scores = np.delete(scores, category, axis=1)
        best, threshold = other_scores.max(axis=1), find_min_score(other_scores)
        areas.append(roc_auc_score(is_member, -best))
        left_out.append((best[is_member] < threshold).mean())
        left_out_wrongly.append((best[~is_member] < threshold).mean())
    measures = {
        "accuracy": (scores.argmax(axis=1) == numbers).mean(),
        "auroc": mean(areas),
        "left out": mean(left_out),
        "left out wrongly": mean(left_out_wrongly),
    }
    return {name: round(100 * float(value), 1) for name, value in measures.items()}


def measure_set(model: InBedder, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Measure one set with and without the question, and with and without examples."""
    rows, examples = load_set(folder, settings)
    texts, names = [text for text, _ in rows], list(examples)
    numbers = np.array([names.index(name) for _, name in rows])
    results: dict[str, Any] = {"rows": len(rows), "categories": len(names)}
    for question in (settings["question"], None):
        for used_examples in ({}, examples):
            method = f"{'question' if question else 'no question'}, {f'{EXAMPLES} examples' if used_examples else 'names'}"
            result = classify(texts, question, names, examples=used_examples, model=model, show_progress_bar=False)
            results[method] = measure_scores(result.scores, numbers)
    return results


def main() -> None:
    """Measure all sets with each model."""
    parser = make_parser(__doc__, ROOT / "evaluation/results/categories.json", reads_data=True)
    parser.add_argument("--model", action="append", required=True)
    options = parser.parse_args()
    sets = yaml.safe_load((Path(__file__).parent / "categories.yaml").read_text(encoding="utf-8"))
    results: dict[str, Any] = {**describe_run(options), "models": {}}
    for name in options.model:
        model = InBedder(name)
        results["models"][name] = {"revision": model.revision, "sets": []}
        for title, settings in sets.items():
            results["models"][name]["sets"].append({"set": title, **measure_set(model, options.data, settings)})
            print(name, json.dumps(results["models"][name]["sets"][-1]), flush=True)
    write_results(options.output, results)


if __name__ == "__main__":
    main()
