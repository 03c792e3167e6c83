#!/usr/bin/env python3
"""Draw the demo's reviews under two questions by two principal components, and compare two groups with the ratings.

python -m scripts.bench.two_questions --picture docs/pictures/two_questions.png
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import v_measure_score

from inbedder import InBedder
from inbedder.io.tables import read_table
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import REVIEW_QUESTIONS, REVIEWS, describe_run, make_parser, write_results

COLOURS = {"positive": "#1f77b4", "negative": "#d62728"}
SEED = 0


def main() -> None:
    """Measure and draw."""
    parser = make_parser(__doc__, RESULTS / "two_questions.json")
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    table = read_table(str(REVIEWS))
    ratings = table.column("polarity")
    model = InBedder(dtype="float32")
    figure, axes = plt.subplots(1, len(REVIEW_QUESTIONS), figsize=(10, 4.2))
    records = []
    for question, axis in zip(REVIEW_QUESTIONS, axes, strict=True):
        vectors = model.encode(table.texts, question, normalize_embeddings=True)
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
    description = (
        f"{len(table.texts)} sentences of inbedder/demo_texts/reviews.csv; two groups of k-means and their writers' ratings"
    )
    content = {**describe_run(options), "description": description, "model": "mini", "dtype": "float32", "results": records}
    write_results(options.output, content)


if __name__ == "__main__":
    main()
