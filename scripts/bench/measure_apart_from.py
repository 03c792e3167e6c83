#!/usr/bin/env python3
"""What grouping apart from a second question does: how far groups follow it, and what the first question's groups are worth.

python scripts/bench/measure_apart_from.py DATA -o evaluation/results/apart_from.json

Each set has labels of both questions, and is grouped by the first, with and without the second taken out. Means over three seeds
of k-means: Cramer's V of the groups with the labels of the second question, and the V-measure with those of the first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from sklearn.metrics import v_measure_score

from inbedder import InBedder, cluster, crosstab
from inbedder.cli.demo import QUESTIONS
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_table
from inbedder.runtime.package_data import find_data_folder
from inbedder_evaluation.tasks.corpus import load_corpus

ROWS, SEEDS = 1000, 3
SETS = {"amazon_multidomain": ("domain", "polarity", 4), "acos_restaurant": ("categories", "sentiments", 12)}
"""Criteria of the first and the second question, and the number of groups."""


def list_corpora(data: Path) -> list[dict[str, Any]]:
    """List texts, questions, labels and numbers of groups."""
    demo = read_table(str(find_data_folder("inbedder", "demo_texts") / "reviews.csv"))
    corpora = [{"set": "demo", "texts": demo.texts, "questions": QUESTIONS, "labels": (None, demo.column("polarity")), "k": 6}]
    for name, (*criteria, k) in SETS.items():
        corpus = load_corpus(name, data, ROWS)
        numbers = [corpus.criteria.index(criterion) for criterion in criteria]
        questions = [corpus.instructions[number] for number in numbers]
        labels = [corpus.labels[number] for number in numbers]
        corpora.append({"set": name, "texts": corpus.texts, "questions": questions, "labels": labels, "k": k})
    return corpora


def measure(corpus: dict[str, Any], model: InBedder) -> dict[str, Any]:
    """Measure one corpus with and without the second question taken out."""
    (question, second_question), (labels, second_labels) = corpus["questions"], corpus["labels"]
    vectors = model.encode(corpus["texts"], question)
    row: dict[str, Any] = {"set": corpus["set"], "question": question, "apart_from": second_question, "k": corpus["k"]}
    for name, apart_from in (("plain", None), ("apart", second_question)):
        options: dict[str, Any] = {"embeddings": vectors, "apart_from": apart_from}
        results = [cluster(corpus["texts"], question, model, corpus["k"], seed, **options) for seed in range(SEEDS)]
        row[f"{name}, Cramer's V"] = round(mean(crosstab([each], {"label": second_labels})[0].cramers_v for each in results), 2)
        if labels is not None:
            row[f"{name}, V-measure"] = round(100 * mean(v_measure_score(labels, each.labels) for each in results), 1)
    return row


def main() -> None:
    """Measure all corpora."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    model = InBedder(dtype="float32")
    rows = [measure(corpus, model) for corpus in list_corpora(options.data)]
    content = {"command": str(__doc__).splitlines()[2], "model": f"mini (revision {model.revision}), float32", "sets": rows}
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
