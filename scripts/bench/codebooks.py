#!/usr/bin/env python3
"""Measure how far codebooks agree with the groups that they are made of, and how well ``find_all`` finds all codes of a text.

    python -m scripts.bench.codebooks DATA -o evaluation/results/codebooks.json

"Agreement": the share of the shipped texts that get the code of their group, without the minimum score. "All codes": texts with
one or several known categories (ACOS and MAMS; airline tweets have one each), three example texts per category. A text gets each
category whose score is within a gap of its best one: the mean F1 over the texts, and the number of categories per text.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml

from inbedder import Category, Codebook, InBedder, classify, cluster
from inbedder.io.tables import read_rows, read_table
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

SHIPPED = {"bank_questions": "What does the customer need help with?", "reviews": "What does the customer talk about?"}
SETS = {
    "acos_restaurant/train": "What does the review talk about?",
    "mams_acsa/train": "What does the review talk about?",
    "airline_tweets/all": "What is the complaint about?",
}
GAPS = (0.0, 0.02, 0.03, 0.05, 0.08, 0.1)
LIMIT, EXAMPLES, MIN_ROWS = 300, 3, 15
"""Maximum number of measured rows, examples per category, and minimum number of rows of a category."""


def measure_agreement(model: InBedder, name: str) -> dict[str, Any]:
    """Measure which share of texts gets the code of its group."""
    texts = read_table(str(ROOT / "inbedder/demo_texts" / f"{name}.csv"), "text").texts
    result = cluster(texts, SHIPPED[name], model=model)
    codes = replace(Codebook.of(result, model), min_score=None).classify(texts, model, embeddings=result.embeddings).names
    equal = [code == result.names[label] for code, label in zip(codes, result.labels, strict=True)]
    return {"texts": len(texts), "codes": len(result.names), "agreement": round(100 * float(np.mean(equal)), 1)}


def measure_all_codes(model: InBedder, folder: Path, name: str) -> dict[str, Any]:
    """Measure ``find_all`` with each gap."""
    sets = yaml.safe_load((ROOT / "scripts/bench/categories.yaml").read_text(encoding="utf-8"))
    display_names = sets["acos_restaurant categories"]["names"]
    rows = [
        (row["text"], {display_names.get(label, label) for label in _list_labels(row)})
        for row in read_rows(str(folder / f"{name}.jsonl.gz"))
    ]
    Random(0).shuffle(rows)
    measured_rows, other_rows = rows[:LIMIT], rows[LIMIT:]
    labels = sorted({label for _, names in rows for label in names})
    labels = [label for label in labels if sum(label in names for _, names in rows) >= MIN_ROWS]
    categories = []
    for label in labels:
        single = [text for text, names in other_rows if names == {label}]
        several = [text for text, names in other_rows if label in names]
        categories.append(Category(label, examples=tuple((single or several)[:EXAMPLES])))
    measured_rows = [row for row in measured_rows if not row[1].isdisjoint(labels)]
    truth = np.array([[label in names for label in labels] for _, names in measured_rows])
    result = classify([text for text, _ in measured_rows], SETS[name], categories, model=model)
    measured = {"rows": len(truth), "categories": len(labels), "categories per text": round(float(truth.sum(1).mean()), 2)}
    return measured | {f"gap {gap}": _measure_gap(result.find_all(gap), truth) for gap in GAPS}


def _list_labels(row: dict[str, Any]) -> list[str]:
    values = row["categories"] if "categories" in row else [row["negative_reason"]]
    labels = [value["category"] if isinstance(value, dict) else value for value in values]
    return [label for label in labels if label and label != "Can't Tell"]


def _measure_gap(predicted: Any, truth: Any) -> dict[str, float]:
    f1 = 2 * (predicted & truth).sum(1) / (predicted.sum(1) + truth.sum(1))
    return {"F1": round(100 * float(f1.mean()), 1), "categories per text": round(float(predicted.sum(1).mean()), 2)}


def main() -> None:
    """Measure both."""
    parser = make_parser(__doc__, ROOT / "evaluation/results/codebooks.json", reads_data=True)
    parser.add_argument("--model", default="mini")
    options = parser.parse_args()
    model = InBedder(options.model)
    results: dict[str, Any] = {**describe_run(options), "model": options.model, "revision": model.revision}
    results["agreement"] = {name: measure_agreement(model, name) for name in SHIPPED}
    results["all codes"] = {name.partition("/")[0]: measure_all_codes(model, options.data, name) for name in SETS}
    print(json.dumps(results, indent=1))
    write_results(options.output, results)


if __name__ == "__main__":
    main()
