#!/usr/bin/env python3
"""Measure classification into named categories without training: accuracy, and texts that belong to no category.

    python -m scripts.bench.categories DATA --model mini --model small
    python -m scripts.bench.categories DATA --model small --likelihood --first 300 --end 450 -o FILE

``categories.yaml`` lists the sets. At most 1,000 rows of each are classified by the names of the categories, and by the names and
five examples each. Without a question the vectors are those of all-MiniLM-L6-v2, the baseline. "None of these": each category is
left out once; the area under the ROC curve of the best score of its texts and of all others, and the shares of both that the
automatic minimum leaves out. "Not sure": the accuracy of the quarter of the texts with the smallest leads, and of the others.

``--likelihood`` measures the calibrated likelihood of the names as answers of a causal LM (``answer_likelihood``) beside the
cosines with and without the question, on rows on which the weights were not chosen. "Flips": the share of texts whose category
changes when "I think it is X." is added, X being another category than the one that was found.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy as np
import yaml
from sklearn.metrics import roc_auc_score

from inbedder import InBedder, classify
from inbedder.classification.category_scores import compute_leads, find_min_lead, find_min_score
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import Vectors
from scripts.bench.answer_likelihood import compute_answer_likelihoods
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

LIMIT, EXAMPLES, MIN_ROWS = 1000, 5, 10
"""Maximum number of rows of a set, examples per category, and minimum number of rows of a category."""
QUESTION_WEIGHT, LIKELIHOOD_WEIGHT = 0.25, 0.015
"""Weights of the cosine with the question (the one without has the rest) and of the likelihood, chosen with ``small`` on the
first 150 rows of each set: the best mean accuracy among those with which no set is worse than without a question."""
Rows = list[tuple[str, str]]


def load_set(folder: Path, settings: dict[str, Any]) -> tuple[Rows, dict[str, list[str]]]:
    """Load texts with the names of their categories, and examples by name of the category."""
    rows = _read_labelled(folder / settings["texts"], settings)
    Random(0).shuffle(rows)
    source = _read_labelled(folder / settings["examples"], settings) if "examples" in settings else rows
    if source is not rows:
        Random(0).shuffle(source)
    by_name: dict[str, list[str]] = defaultdict(list)
    for text, name in source:
        by_name[name].append(text)
    examples = {name: texts[:EXAMPLES] for name, texts in sorted(by_name.items()) if len(texts) >= MIN_ROWS}
    example_texts = {text for texts in examples.values() for text in texts}
    return [(text, name) for text, name in rows if name in examples and text not in example_texts], examples


def _read_labelled(path: Path, settings: dict[str, Any]) -> Rows:
    rows: Rows = []
    for record in read_rows(str(path)):
        value = record[settings["label"]]
        labels = set(value) if isinstance(value, list) else {value}
        if len(labels) == 1 and (label := labels.pop()) and label not in settings.get("omitted", ()):
            rows.append((record["text"], settings.get("names", {}).get(label, label.replace("_", " ").lower())))
    return rows


def measure_scores(scores: Vectors, numbers: Any) -> dict[str, float]:
    """Measure the accuracy of scores, shape (n, k), and how well they detect texts of a held-out category."""
    areas, left_out, left_out_wrongly = [], [], []
    for category in range(scores.shape[1]):
        if not (is_member := numbers == category).any():
            continue
        other_scores = np.delete(scores, category, axis=1)
        best, threshold = other_scores.max(axis=1), find_min_score(other_scores)
        areas.append(roc_auc_score(is_member, -best))
        left_out.append((best[is_member] < threshold).mean())
        left_out_wrongly.append((best[~is_member] < threshold).mean())
    is_right, is_sure = scores.argmax(axis=1) == numbers, compute_leads(scores) >= find_min_lead(scores)
    measures = {
        "accuracy": is_right.mean(),
        "accuracy if sure": is_right[is_sure].mean(),
        "accuracy if not sure": is_right[~is_sure].mean(),
        "auroc": mean(areas),
        "left out": mean(left_out),
        "left out wrongly": mean(left_out_wrongly),
    }
    return {name: round(100 * float(value), 1) for name, value in measures.items()}


def measure_set(model: InBedder, rows: Rows, examples: dict[str, list[str]], question: str) -> dict[str, Any]:
    """Measure one set with and without the question, and with and without examples."""
    texts, names, numbers = _split_rows(rows, examples)
    results: dict[str, Any] = {}
    for instruction in (question, None):
        for used_examples in ({}, examples):
            method = f"{'question' if instruction else 'no question'}, {f'{EXAMPLES} examples' if used_examples else 'names'}"
            options: dict[str, Any] = {"model": model, "show_progress_bar": False}
            result = classify(texts, instruction, names, examples=used_examples, **options)
            results[method] = measure_scores(result.scores, numbers)
    return results


def measure_likelihood(model: InBedder, rows: Rows, examples: dict[str, list[str]], question: str) -> dict[str, Any]:
    """Measure one set with the likelihood of the names and with the cosines beside it, and the flips of each way."""
    texts, names, numbers = _split_rows(rows, examples)
    random = Random(0)
    opinions = np.array([random.randrange(len(names)) for _ in texts])
    texts_with_opinion = [f"{text} I think it is {names[number]}." for text, number in zip(texts, opinions, strict=True)]
    scores, flipped_scores = (_compute_scores(model, rows, question, names, examples) for rows in (texts, texts_with_opinion))
    results: dict[str, Any] = {}
    for method in scores:
        labels, flipped_labels = scores[method].argmax(axis=1), flipped_scores[method].argmax(axis=1)
        flips = (labels != flipped_labels)[opinions != labels].mean()
        results[method] = measure_scores(scores[method], numbers) | {"flips": round(100 * float(flips), 1)}
    return results


def _compute_scores(
    model: InBedder, texts: list[str], question: str, names: list[str], examples: dict[str, list[str]]
) -> dict[str, Vectors]:
    """Compute the scores of each method; the likelihood is that of the names and computed once."""
    options: dict[str, Any] = {"model": model, "show_progress_bar": False}
    likelihoods = compute_answer_likelihoods(model, texts, question, names)
    scores: dict[str, Vectors] = {"likelihood only, names": likelihoods}
    for used_examples in ({}, examples):
        kind = f"{EXAMPLES} examples" if used_examples else "names"
        cosines, plain_cosines = (
            classify(texts, instruction, names, examples=used_examples, **options).scores for instruction in (question, None)
        )
        scores |= {f"question, {kind}": cosines, f"no question, {kind}": plain_cosines}
        both_cosines = QUESTION_WEIGHT * cosines + (1 - QUESTION_WEIGHT) * plain_cosines
        scores |= {f"both cosines, {kind}": both_cosines, f"likelihood, {kind}": both_cosines + LIKELIHOOD_WEIGHT * likelihoods}
    return scores


def _split_rows(rows: Rows, examples: dict[str, list[str]]) -> tuple[list[str], list[str], Any]:
    """Split rows into texts, the names of all categories, and the number of each text's category."""
    names = list(examples)
    return [text for text, _ in rows], names, np.array([names.index(name) for _, name in rows])


def main() -> None:
    """Measure all sets with each model."""
    parser = make_parser(__doc__, ROOT / "evaluation/results/categories.json", reads_data=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--likelihood", action="store_true", help="measure the likelihood of the names")
    parser.add_argument("--first", type=int, default=0, help="first row of each set")
    parser.add_argument("--end", type=int, default=LIMIT, help="row after the last one")
    options = parser.parse_args()
    sets = yaml.safe_load((Path(__file__).parent / "categories.yaml").read_text(encoding="utf-8"))
    results: dict[str, Any] = {**describe_run(options), "models": {}}
    for name in options.model:
        model = InBedder(name)
        results["models"][name] = {"revision": model.revision, "sets": []}
        for title, settings in sets.items():
            all_rows, examples = load_set(options.data, settings)
            rows, measure = all_rows[options.first : options.end], measure_likelihood if options.likelihood else measure_set
            record = {"set": title, "rows": len(rows), "categories": len(examples)}
            results["models"][name]["sets"].append(record | measure(model, rows, examples, settings["question"]))
            print(name, json.dumps(results["models"][name]["sets"][-1]), flush=True)
    write_results(options.output, results)


if __name__ == "__main__":
    main()
