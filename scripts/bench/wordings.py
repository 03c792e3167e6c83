#!/usr/bin/env python3
"""Measure how much the wording of a question changes the groups: the mean adjusted Rand index of the groups of 20 wordings.

    python -m scripts.bench.wordings DATA --model mini --model small

`wordings.yaml` has five questions about each of four kinds of texts. Its author read neither the training questions nor those of
the tables. Groups are eight, by k-means with one seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml

from inbedder import InBedder, compare_wordings
from inbedder.io.tables import read_rows
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

GROUPS = 8


def load_texts(folder: Path, count: int) -> dict[str, list[str]]:
    """Load a sample of each kind of texts, from the repository and, for titles, from the folder of evaluation sets."""
    sources = {
        "reviews": (ROOT / "inbedder/demo_texts/reviews.csv", "text"),
        "messages": (ROOT / "evaluation/data/intent_emotion.jsonl", "anchor"),
        "captions": (ROOT / "evaluation/data/instruct_stsb.jsonl", "sentence1"),
        "titles": (folder / "stackoverflow_titles/all.jsonl.gz", "text"),
    }
    samples = {}
    for kind, (path, column) in sources.items():
        texts = sorted({row[column] for row in read_rows(str(path))})
        samples[kind] = Random(0).sample(texts, min(count, len(texts)))
    return samples


def measure(model: InBedder, texts: Sequence[str], wordings: Sequence[str]) -> dict[str, float]:
    """Measure one question: the mean agreement of its wordings, and that of the wording that agrees least with the others."""
    agreements = compare_wordings(texts, wordings, model, GROUPS).mean_agreement
    return {"mean": round(float(np.mean(agreements)), 3), "worst": round(float(np.min(agreements)), 3)}


def main() -> None:
    """Measure each model, and write the results."""
    parser = make_parser(__doc__, RESULTS / "wordings.json", reads_data=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--texts", type=int, default=100, help="Maximum number of texts of each kind.")
    options = parser.parse_args()
    questions = yaml.safe_load((ROOT / "scripts/bench/wordings.yaml").read_text(encoding="utf-8"))
    texts = load_texts(options.data, options.texts)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in options.model:
        model, results[name] = InBedder(name), {}
        for kind, wordings_by_question in questions.items():
            results[name][kind] = [
                {"question": question, **measure(model, texts[kind], wordings)}
                for question, wordings in wordings_by_question.items()
            ]
            print(name, kind, *results[name][kind], sep="\n", flush=True)
    write_results(options.output, {**describe_run(options), "models": results})


if __name__ == "__main__":
    main()
