#!/usr/bin/env python3
"""Measure how many answers are right above a confidence, on the answers of `judged_answers.csv` that a reader marked.

python scripts/bench/measure_confidence.py [-o FILE.json]

An answer that is another one since, for instance on another CPU, is left out.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from inbedder import InBedder
from inbedder.encoding.prompt_runner import RunOptions

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("mini", "small", "medium")
THRESHOLDS = (0.0, 0.3, 0.5, 0.7)


def measure_model(name: str, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Measure the answers of a model at each threshold: how many are shown, and how many of those are right."""
    model = InBedder(name)
    texts, questions = ([row[column] for row in rows] for column in ("text", "instruction"))
    answers = [
        answers[0] for answers in model.pipeline.runner.answer(texts, questions, model.options.encoding.sampling, RunOptions())
    ]
    judgements = [
        (answer.confidence, row[f"{name} accepted"] == "yes")
        for row, answer in zip(rows, answers, strict=True)
        if answer.text == row[name]
    ]
    results = []
    for threshold in THRESHOLDS:
        is_right = [right for confidence, right in judgements if confidence >= threshold]
        results.append({"model": name, "min_confidence": threshold, "shown": len(is_right), "right": sum(is_right)})
    return results


def main() -> None:
    """Measure the models, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "scripts/results/confidence.json")
    options = parser.parse_args()
    with (ROOT / "finetune/results/judged_answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    results = [result for name in MODELS for result in measure_model(name, rows)]
    content = {"command": "python scripts/bench/measure_confidence.py", "answers": len(rows), "results": results}
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
