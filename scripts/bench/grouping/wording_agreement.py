"""Measure how much the wording of a question changes the groups: the mean adjusted Rand index of the groups of 20 wordings.

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
from scripts.bench.harness import ROOT

GROUPS, TEXTS = 8, 100
"""Number of groups, and maximum number of texts of each kind."""


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


def measure_question(model: InBedder, texts: Sequence[str], wordings: Sequence[str]) -> dict[str, float]:
    """Measure one question: the mean agreement of its wordings, and that of the wording that agrees least with the others."""
    agreements = compare_wordings(texts, wordings, model, GROUPS).mean_agreement
    return {"mean": round(float(np.mean(agreements)), 3), "worst": round(float(np.min(agreements)), 3)}


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure every question of ``wordings.yaml``."""
    questions = yaml.safe_load((Path(__file__).parent / "wordings.yaml").read_text(encoding="utf-8"))
    texts = load_texts(data, TEXTS)
    results: dict[str, list[dict[str, Any]]] = {}
    for kind, wordings_by_question in questions.items():
        results[kind] = [
            {"question": question, **measure_question(model, texts[kind], wordings)}
            for question, wordings in wordings_by_question.items()
        ]
        print(kind, *results[kind], sep="\n", flush=True)
    return {"models": {model.name: results}}
