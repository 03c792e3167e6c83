#!/usr/bin/env python3
"""Contrast triplets on two corpora: an instruction follower against an embedder without instruction, side by side.

    python scripts/measure_contrast.py --data FOLDER --model mini --output evaluation/results/mini_contrast.json

FOLDER holds amazon_multidomain/all.jsonl.gz and airline_tweets/all.jsonl.gz (fields text and the label columns below).
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

from evaluation.tasks.contrast_triplets import draw_triplets, score_triplets
from inbedder import InBedder, __version__
from inbedder.models.bundled import BASE_NAME, base_folder

CORPORA = {
    "amazon_multidomain": {
        "domain": "What kind of product is reviewed?",
        "polarity": "Is the review positive or negative?",
    },
    "airline_tweets": {
        "negative_reason": "What is the complaint about?",
        "airline": "Which airline is it about?",
    },
}


def read_corpus(path: Path, criteria: list[str]) -> tuple[list[str], list[list[str]]]:
    """Texts and the labels of both criteria; rows without a label are left out."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if all(row[name] for name in criteria)]
    return [row["text"] for row in rows], [[row[name] for row in rows] for name in criteria]


def main() -> None:
    """Measure and write one json file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--triplets", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    baseline = SentenceTransformer(str(base_folder()), device="cpu")
    model = InBedder(options.model)
    embedders = {
        f"{BASE_NAME} without instruction": lambda texts, _instruction: np.asarray(baseline.encode(list(texts), batch_size=64)),
        options.model: lambda texts, instruction: model.encode(texts, instruction, batch_size=64),
    }
    results = []
    for corpus, criteria in CORPORA.items():
        texts, labels = read_corpus(options.data / corpus / "all.jsonl.gz", list(criteria))
        triplets = draw_triplets(labels[0], labels[1], options.triplets, options.seed)
        for name, encode in embedders.items():
            started = time.time()
            first, second = criteria.values()
            scores = score_triplets(texts, triplets, encode, (first, second))
            values = dict(zip(criteria, (round(scores.first, 1), round(scores.second, 1)), strict=True))
            row = {"corpus": corpus, "model": name, **values, "harmonic_mean": round(scores.harmonic_mean, 1)}
            results.append({**row, "seconds": round(time.time() - started)})
            print(json.dumps(results[-1]), flush=True)
    record = {
        "command": "python scripts/measure_contrast.py " + " ".join(sys.argv[1:]),
        "version": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} CPU threads",
        "triplets": options.triplets,
        "seed": options.seed,
        "instructions": CORPORA,
        "results": results,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
