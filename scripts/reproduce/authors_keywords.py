#!/usr/bin/env python3
"""Compare keywords and entropies of groups with those of the InBedder authors' code.

python scripts/reproduce/authors_keywords.py golden -o tests/data/golden/keywords.json               # mini's answers on the demo
python scripts/reproduce/authors_keywords.py bench FOLDER -o scripts/results/authors_keywords.json  # the authors' runs

The authors join the answers of a group, weigh words by scikit-learn's TF-IDF with its defaults, and rank them by the weight minus
its mean over all groups. This script does the same without scikit-learn. FOLDER holds explain_keywords.json (run -> "clusters":
group -> answers, "keywords": group -> their 20 words) and explain_entropy.json (run -> groups with "components" and "entropy").
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inbedder import InBedder, cluster
from inbedder.grouping.describe.explain import find_keywords, measure_agreement
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_table

ROOT = Path(__file__).resolve().parents[2]
COMPARED_WORDS, SAVED_WORDS = 8, 20
"""Keywords per group that are compared with the authors', and that are saved as golden data."""
QUESTIONS = {"What does the customer talk about?": 8, "Is the review positive or negative?": 2}


def score_words(groups: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """Score the words of each group as the authors do, the highest first."""
    counts = [Counter(re.findall(r"\b\w\w+\b", " ".join(answers).lower())) for answers in groups]
    group_counts = Counter(word for count in counts for word in count)
    weights = []
    for count in counts:
        raw = {word: n * (math.log((1 + len(groups)) / (1 + group_counts[word])) + 1) for word, n in count.items()}
        length = math.sqrt(sum(value**2 for value in raw.values())) or 1.0
        weights.append({word: value / length for word, value in raw.items()})
    mean = {word: sum(weight.get(word, 0.0) for weight in weights) / len(groups) for word in group_counts}
    scores = [{word: weight.get(word, 0.0) - mean[word] for word in mean} for weight in weights]
    return [dict(sorted(score.items(), key=lambda item: (-item[1], item[0]))) for score in scores]


def compute_entropy(components: dict[str, int]) -> float:
    """Compute the entropy of label counts, in bits."""
    total = sum(components.values())
    return -sum(n / total * math.log2(n / total) for n in components.values())


def make_golden_data() -> dict[str, Any]:
    """Compute mini's answers and groups on the demo, and their keywords and entropies as the authors do."""
    table, model, runs = read_table(str(ROOT / "inbedder" / "demo_texts" / "reviews.csv")), InBedder(), []
    true_labels = [str(label) for label in table.column("polarity")]
    for question, k in QUESTIONS.items():
        result = cluster(table.texts, question, model, k)
        labels = result.labels.tolist()
        rows = [[row for row, label in enumerate(labels) if label == number] for number in range(k)]
        scores = score_words([[result.answers[row] for row in group] for group in rows])
        keywords = [[[word, round(score, 9)] for word, score in list(one.items())[:SAVED_WORDS]] for one in scores]
        entropies = [round(compute_entropy(Counter(true_labels[row] for row in group)), 9) for group in rows]
        run = {"question": question, "answers": result.answers, "labels": labels, "given": true_labels}
        runs.append({**run, "keywords": keywords, "entropy": entropies})
    description = (
        "mini's answers on inbedder/demo_texts (CC BY-SA 4.0); keywords: the 20 best words of each group with their scores"
    )
    return {
        "command": "python scripts/reproduce/authors_keywords.py golden -o tests/data/golden/keywords.json",
        "description": description,
        "runs": runs,
    }


def compare_with_authors(folder: Path) -> dict[str, Any]:
    """Compute the share of the authors' first keywords among ours, and the largest difference of entropies."""
    runs = json.loads((folder / "explain_keywords.json").read_text(encoding="utf-8"))
    shares: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        groups = list(run["clusters"].values())
        answers, labels = [one for group in groups for one in group], np.repeat(np.arange(len(groups)), list(map(len, groups)))
        scores = score_words(groups)
        authors_keywords = [list(run["keywords"][number])[:COMPARED_WORDS] for number in run["clusters"]]
        shares[name] = {"groups": len(groups)}
        for weighting in ("paper", "standing-out"):
            ours = find_keywords(answers, labels, COMPARED_WORDS, weighting=weighting)
            pairs = zip(authors_keywords, ours, scores, strict=True)
            shares[name][weighting] = round(float(np.mean([_compute_share(*pair) for pair in pairs])), 4)
    entropies = [
        abs(
            group["entropy"]
            - measure_agreement(np.zeros(sum(group["components"].values()), dtype=np.int64), _expand_labels(group)).entropy[0]
        )
        for groups in json.loads((folder / "explain_entropy.json").read_text(encoding="utf-8")).values()
        for group in groups
    ]
    return {
        "command": "python scripts/reproduce/authors_keywords.py bench FOLDER -o scripts/results/authors_keywords.json",
        "description": (
            f"share of the authors' first {COMPARED_WORDS} keywords per group that are ours, as sets, equal scores exchangeable"
        ),
        "runs": shares,
        "mean": {
            weighting: round(float(np.mean([share[weighting] for share in shares.values()])), 4)
            for weighting in ("paper", "standing-out")
        },
        "entropies": len(entropies),
        "greatest_difference_of_entropies": float(f"{max(entropies):.1e}"),
    }


def _expand_labels(group: dict[str, Any]) -> list[str]:
    return [label for label, count in group["components"].items() for _ in range(count)]


def _compute_share(authors_keywords: list[str], ours: list[str], scores: dict[str, float]) -> float:
    """Compute the share of the authors' words that are ours, or that tie with one of ours that is not authors_keywords."""
    remaining = [scores[word] for word in ours if word not in authors_keywords and word in scores]
    agreed = 0
    for word in authors_keywords:
        tied = next((score for score in remaining if abs(score - scores.get(word, math.inf)) < 1e-9), None)
        if word in ours:
            agreed += 1
        elif tied is not None:
            remaining.remove(tied)
            agreed += 1
    return agreed / len(authors_keywords) if authors_keywords else 1.0


def main() -> None:
    """Run the command, and write its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="step", required=True)
    first, second = commands.add_parser("golden"), commands.add_parser("bench")
    second.add_argument("folder", type=Path)
    for command in (first, second):
        command.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    content = make_golden_data() if options.step == "golden" else compare_with_authors(options.folder)
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(content, indent=None if options.step == "golden" else 1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
