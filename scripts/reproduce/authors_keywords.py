#!/usr/bin/env python3
"""Keywords and entropies of groups, computed the way of the InBedder authors' code, to compare those of this package with.

python scripts/reproduce/authors_keywords.py golden -o tests/data/golden/keywords.json               # mini's answers on the demo
python scripts/reproduce/authors_keywords.py bench FOLDER -o scripts/results/authors_keywords.json  # the authors' runs

The authors join the answers of a group, weigh words by scikit-learn's TF-IDF with its defaults, and rank them by the weight minus
its mean over all groups. Here that is written out without scikit-learn. FOLDER holds explain_keywords.json (run -> "clusters":
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
from inbedder.grouping.explain import find_keywords, measure_agreement
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_table

ROOT = Path(__file__).resolve().parents[2]
TOP, KEPT = 8, 20
QUESTIONS = {"What does the customer talk about?": 8, "Is the review positive or negative?": 2}


def authors_scores(groups: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """Score of each word of each group, the highest first."""
    counts = [Counter(re.findall(r"\b\w\w+\b", " ".join(answers).lower())) for answers in groups]
    found_in = Counter(word for count in counts for word in count)
    weights = []
    for count in counts:
        raw = {word: n * (math.log((1 + len(groups)) / (1 + found_in[word])) + 1) for word, n in count.items()}
        length = math.sqrt(sum(value**2 for value in raw.values())) or 1.0
        weights.append({word: value / length for word, value in raw.items()})
    mean = {word: sum(weight.get(word, 0.0) for weight in weights) / len(groups) for word in found_in}
    scores = [{word: weight.get(word, 0.0) - mean[word] for word in mean} for weight in weights]
    return [dict(sorted(score.items(), key=lambda item: (-item[1], item[0]))) for score in scores]


def entropy_in_bits(components: dict[str, int]) -> float:
    """Entropy of label counts."""
    total = sum(components.values())
    return -sum(n / total * math.log2(n / total) for n in components.values())


def golden() -> dict[str, Any]:
    """Answers of mini, its groups, and their keywords and entropies computed the authors' way."""
    table, model, runs = read_table(str(ROOT / "inbedder" / "demo_texts" / "reviews.csv")), InBedder(), []
    given = [str(label) for label in table.column("polarity")]
    for question, k in QUESTIONS.items():
        result = cluster(table.texts, question, model, k)
        labels = result.labels.tolist()
        rows = [[row for row, label in enumerate(labels) if label == number] for number in range(k)]
        scores = authors_scores([[result.answers[row] for row in group] for group in rows])
        kept = [[[word, round(score, 9)] for word, score in list(one.items())[:KEPT]] for one in scores]
        entropies = [round(entropy_in_bits(Counter(given[row] for row in group)), 9) for group in rows]
        run = {"question": question, "answers": result.answers, "labels": labels, "given": given}
        runs.append({**run, "keywords": kept, "entropy": entropies})
    about = "mini's answers on inbedder/demo_texts (CC BY-SA 4.0); keywords: the 20 best words of each group with their scores"
    return {
        "command": "python scripts/reproduce/authors_keywords.py golden -o tests/data/golden/keywords.json",
        "description": about,
        "runs": runs,
    }


def bench(folder: Path) -> dict[str, Any]:
    """Share of the authors' first eight keywords that ours hold as sets, ties apart, and the greatest difference of entropies."""
    runs = json.loads((folder / "explain_keywords.json").read_text(encoding="utf-8"))
    shares: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        groups = list(run["clusters"].values())
        answers, labels = [one for group in groups for one in group], np.repeat(np.arange(len(groups)), list(map(len, groups)))
        scores = authors_scores(groups)
        theirs = [list(run["keywords"][number])[:TOP] for number in run["clusters"]]
        shares[name] = {"groups": len(groups)}
        for weighting in ("paper", "standing-out"):
            ours = find_keywords(answers, labels, TOP, weighting=weighting)
            pairs = zip(theirs, ours, scores, strict=True)
            shares[name][weighting] = round(float(np.mean([_share(*pair) for pair in pairs])), 4)
    entropies = [
        abs(
            group["entropy"]
            - measure_agreement(np.zeros(sum(group["components"].values()), dtype=np.int64), _labels(group)).entropy[0]
        )
        for groups in json.loads((folder / "explain_entropy.json").read_text(encoding="utf-8")).values()
        for group in groups
    ]
    return {
        "command": "python scripts/reproduce/authors_keywords.py bench FOLDER -o scripts/results/authors_keywords.json",
        "description": f"share of the authors' first {TOP} keywords per group that are ours, as sets, equal scores exchangeable",
        "runs": shares,
        "mean": {
            weighting: round(float(np.mean([share[weighting] for share in shares.values()])), 4)
            for weighting in ("paper", "standing-out")
        },
        "entropies": len(entropies),
        "greatest_difference_of_entropies": float(f"{max(entropies):.1e}"),
    }


def _labels(group: dict[str, Any]) -> list[str]:
    return [label for label, count in group["components"].items() for _ in range(count)]


def _share(theirs: list[str], ours: list[str], scores: dict[str, float]) -> float:
    """How many of their words are ours, or have the score of one of ours that is not theirs."""
    left = [scores[word] for word in ours if word not in theirs and word in scores]
    agreed = 0
    for word in theirs:
        tied = next((score for score in left if abs(score - scores.get(word, math.inf)) < 1e-9), None)
        if word in ours:
            agreed += 1
        elif tied is not None:
            left.remove(tied)
            agreed += 1
    return agreed / len(theirs) if theirs else 1.0


def main() -> None:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="step", required=True)
    first, second = commands.add_parser("golden"), commands.add_parser("bench")
    second.add_argument("folder", type=Path)
    for command in (first, second):
        command.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    content = golden() if options.step == "golden" else bench(options.folder)
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(content, indent=None if options.step == "golden" else 1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
