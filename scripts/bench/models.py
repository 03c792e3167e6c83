#!/usr/bin/env python3
"""Measure texts per second and peak memory of the bundled models and of sentence-transformers on the base of mini.

    python -m scripts.bench.models -o scripts/results/models.json

Texts have 20 words. Each model runs in a process of its own, in turn; the results are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from inbedder import InBedder
from inbedder.models.bundled import find_base_folder
from inbedder.prompting.stopwords import load_stopwords
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import describe_run, make_parser, write_results

TEXTS, WORDS = 512, 20
BASELINE = "sentence-transformers"
BASELINES = {BASELINE: "float32", f"{BASELINE}, bfloat16": "bfloat16"}
QUESTION = "How does the writer feel?"


def load_encoder(name: str) -> tuple[Callable[[list[str], str], Any], str]:
    """Load a model.

    Args:
        name: A model of inbedder, or a key of ``BASELINES``, whose model reads texts without the question.

    Returns:
        Its encode function, of texts and question, and its dtype.
    """
    if name not in BASELINES:
        model = InBedder(name)
        return model.encode, str(model.compute_dtype)
    from sentence_transformers import SentenceTransformer

    dtype = BASELINES[name]
    baseline = SentenceTransformer(str(find_base_folder()), device="cpu", model_kwargs={"dtype": dtype})
    return lambda texts, _question: baseline.encode(texts), dtype


def measure(name: str) -> dict[str, Any]:
    """Measure one model in this process."""
    draw, words = random.Random(0), sorted(load_stopwords())
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(32 + TEXTS)]
    encode, dtype = load_encoder(name)
    encode(texts[:32], QUESTION)
    start = time.perf_counter()
    encode(texts[32:], QUESTION)
    return {
        "dtype": dtype,
        "texts_per_second": TEXTS / (time.perf_counter() - start),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def summarize(name: str, rounds: list[dict[str, Any]], baseline_rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Take the medians of a model's rounds, and of their ratios to the baseline's rounds."""
    row = {"model": name, "dtype": rounds[0]["dtype"]}
    row |= {key: round(statistics.median(each[key] for each in rounds), 1) for key in ("texts_per_second", "peak_mib")}
    key = "texts_per_second"
    ratios = [each[key] / base[key] for each, base in zip(rounds, baseline_rounds, strict=True)]
    return row | {"ratio_to_baseline": round(statistics.median(ratios), 2)}


def main() -> None:
    """Measure each model in a process of its own and write."""
    parser = make_parser(__doc__, RESULTS / "models.json")
    parser.add_argument("--model", action="append", help="May repeat; mini and small by default.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    command = [sys.executable, "-m", "scripts.bench.models", "--one"]
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in (*BASELINES, *(options.model or ("mini", "small")))}
    for _ in range(options.rounds):
        for name, results in rounds.items():
            process = subprocess.run([*command, name], capture_output=True, text=True, check=True)
            results.append(json.loads(process.stdout.splitlines()[-1]))
    content = {
        **describe_run(options),
        "description": f"{TEXTS} texts of {WORDS} words under one question, the default dtype; median of {options.rounds} rounds",
        "models": [summarize(name, results, rounds[BASELINE]) for name, results in rounds.items()],
    }
    write_results(options.output, content)


if __name__ == "__main__":
    main()
