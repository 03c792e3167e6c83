#!/usr/bin/env python3
"""Draw the demo's reviews under two questions by two principal components, and compare two groups with the ratings.

python scripts/dev/draw_questions.py -o scripts/results/two_questions.json --picture docs/pictures/two_questions.png
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import v_measure_score

from inbedder import InBedder
from inbedder.io.files import atomic_write

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = ("What is being reviewed?", "Is the review positive or negative?")
COLOURS = {"positive": "#1f77b4", "negative": "#d62728"}
SEED = 0


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    with open(ROOT / "inbedder" / "demo_texts" / "reviews.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts, ratings = [row["text"] for row in rows], [row["polarity"] for row in rows]
    model = InBedder(dtype="float32")
    figure, axes = plt.subplots(1, len(QUESTIONS), figsize=(10, 4.2))
    records = []
    for question, axis in zip(QUESTIONS, axes, strict=True):
        vectors = model.encode(texts, question, normalize_embeddings=True)
        groups = KMeans(2, n_init=10, random_state=SEED).fit_predict(vectors)
        records.append({"question": question, "v_measure": round(100 * v_measure_score(ratings, groups), 1)})
        points = PCA(2, random_state=SEED).fit_transform(vectors)
        for rating, colour in COLOURS.items():
            row_indices = [index for index, value in enumerate(ratings) if value == rating]
            axis.scatter(*points[row_indices].T, s=9, alpha=0.7, color=colour, label=f"rated {rating}")
        axis.set(title=question, xticks=[], yticks=[])
    axes[0].legend(loc="best", frameon=False)
    figure.tight_layout()
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, dpi=110, metadata={"Software": None})
    description = f"{len(texts)} sentences of inbedder/demo_texts/reviews.csv; two groups of k-means and their writers' ratings"
    command = f"python scripts/dev/draw_questions.py {shlex.join(sys.argv[1:])}"
    content = {"command": command, "description": description, "model": "mini", "dtype": "float32", "results": records}
    with atomic_write(options.output) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
