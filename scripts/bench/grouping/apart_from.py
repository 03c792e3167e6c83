"""Measure groups apart from a second question: how far they follow it, and how well they match the first question's labels.

Each set has labels of both questions, and is grouped by the first, with and without the second removed. The results are means
over three seeds of k-means: Cramer's V of the groups with the labels of the second question, and the V-measure with those of
the first.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from sklearn.metrics import v_measure_score

from inbedder import InBedder, cluster, crosstab
from inbedder.io.tables import read_table
from inbedder_evaluation.tasks.corpus import load_corpus
from scripts.bench.harness import REVIEW_QUESTIONS, REVIEWS

ROWS, SEEDS = 1000, 3
SETS = {"amazon_multidomain": ("domain", "polarity", 4), "acos_restaurant": ("categories", "sentiments", 12)}
"""Criteria of the first and the second question, and the number of groups."""


def list_corpora(data: Path) -> list[dict[str, Any]]:
    """List texts, questions, labels and numbers of groups."""
    demo = read_table(str(REVIEWS))
    corpora = [
        {"set": "demo", "texts": demo.texts, "questions": REVIEW_QUESTIONS, "labels": (None, demo.column("polarity")), "k": 6}
    ]
    for name, (*criteria, k) in SETS.items():
        corpus = load_corpus(name, data, ROWS)
        numbers = [corpus.criteria.index(criterion) for criterion in criteria]
        questions = [corpus.instructions[number] for number in numbers]
        set_labels = [corpus.labels[number] for number in numbers]
        corpora.append({"set": name, "texts": corpus.texts, "questions": questions, "labels": set_labels, "k": k})
    return corpora


def measure_corpus(corpus: dict[str, Any], model: InBedder) -> dict[str, Any]:
    """Measure one corpus with and without the second question removed."""
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


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure all corpora in a folder of evaluation sets."""
    return {"sets": [measure_corpus(corpus, model) for corpus in list_corpora(data)]}
