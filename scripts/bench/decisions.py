#!/usr/bin/env python3
"""Measure typed decisions: choices, statements, scores; how far confidence and probabilities can be trusted.

    python -m scripts.bench.decisions DATA --model mini

The curve of statements is fitted on the first 300 rows of each set of ``categories.yaml``, over all sets, and everything is
measured on the next 300. The temperature of choices is that of ``classify``; those that fit each set are shown. Coverage 60:
accuracy on the 60% of the texts with the highest confidence. Calibration error: mean difference of the best probability and the
accuracy in ten bins. Statements ask for each category whether it holds; yes-or-no: the same question, scored by the cosines with
"yes" and "no". Complement: mean of |P(yes) + P(yes to the negated question) - 1|. Scores: rank correlation with SST-5's levels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import minimize
from scipy.stats import spearmanr
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from inbedder import InBedder, classify
from inbedder.classification import decisions
from inbedder.grouping.partition.temperature import fit_temperature
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import Vectors, similarity
from scripts.bench.categories import load_set
from scripts.bench.harness import ROOT, describe_run, make_parser, write_results

ROWS, MAX_STATEMENTS, MIN_ROWS, BINS = 300, 4, 5, 10
"""Rows to fit and rows to measure, statements per set, minimum number of rows of a statement's category, and bins."""
COVERAGES = (100, 80, 60, 40, 20)
STATEMENTS = {
    "clinc150 domains": ("Is the request about {}?", "Is the request not about {}?"),
    "airline complaints": ("Is the customer complaining about {}?", "Is the customer not complaining about {}?"),
    "banking77": ("Does the customer need help with {}?", "Does the customer not need help with {}?"),
    "acos_restaurant categories": ("Does the review talk about {}?", "Does the review not talk about {}?"),
    "acos_restaurant judgement": ("Is the review {}?", "Is the review not {}?"),
}
"""Question of yes or no about a category of each set, and its negation."""
LEVELS = ["very negative", "negative", "neutral", "positive", "very positive"]
"""Levels of SST-5."""
OPTIONS: dict[str, Any] = {"show_progress_bar": False}


def measure_probabilities(probabilities: Vectors, numbers: Any) -> dict[str, Any]:
    """Measure the accuracy of the best options at each coverage, and the calibration error; probabilities, shape (n, k)."""
    confidences, is_right = decisions.compute_confidences(probabilities), probabilities.argmax(axis=1) == numbers
    order, best = np.argsort(-confidences, kind="stable"), probabilities.max(axis=1)
    bins = np.minimum((best * BINS).astype(int), BINS - 1)
    gaps = [(bins == number).mean() * abs(best[bins == number].mean() - is_right[bins == number].mean()) for number in set(bins)]
    accuracies = {f"coverage {share}": is_right[order[: len(order) * share // 100]].mean() for share in COVERAGES}
    return {name: round(100 * float(value), 1) for name, value in {**accuracies, "calibration error": sum(gaps)}.items()}


def fit_statements(cosines: Vectors, holds: Any) -> tuple[float, float]:
    """Fit threshold and temperature of statements; yes and no weigh the same, as most statements are false of most texts."""
    weights = np.where(holds, 0.5 / holds.mean(), 0.5 / (1 - holds.mean()))

    def compute_loss(parameters: Any) -> float:
        logits = (cosines - parameters[0]) / np.exp(parameters[1])
        return float((weights * np.logaddexp(0, np.where(holds, -logits, logits))).mean())

    threshold, log_temperature = minimize(compute_loss, [0.3, np.log(0.1)], method="Nelder-Mead").x
    return float(threshold), float(np.exp(log_temperature))


def compute_cosines(model: InBedder, texts: list[str], question: str, options: list[str], *, is_asked: bool) -> Vectors:
    """Compute the cosines of texts and options, shape (n, k), under the question or without one."""
    instruction = question if is_asked else None
    return similarity(model.encode(texts, instruction, **OPTIONS), model.encode(options, instruction, **OPTIONS))


def read_statements(model: InBedder, texts: list[str], labels: list[str], forms: tuple[str, str]) -> dict[str, Any]:
    """Read statements of the categories that have enough rows: cosines of each with all texts, and whether it holds."""
    names = [name for name in sorted(set(labels)) if labels.count(name) >= MIN_ROWS][:MAX_STATEMENTS]
    questions, negations = ([form.format(name) for name in names] for form in forms)
    both = compute_cosines(model, texts, "", questions + negations, is_asked=False)
    return {
        "questions": questions,
        "holds": np.array([[label == name for label in labels] for name in names]),
        "cosines": both[:, : len(names)].T,
        "negated": both[:, len(names) :].T,
    }


def measure_statements(model: InBedder, texts: list[str], read: dict[str, Any]) -> dict[str, float]:
    """Measure the statements of one set."""
    probabilities, negated = (decisions.compute_statement_probabilities(read[name]) for name in ("cosines", "negated"))
    yes_or_no = [compute_cosines(model, texts, question, ["yes", "no"], is_asked=True) for question in read["questions"]]
    rows, answers = (
        list(zip(read["holds"], read["cosines"], probabilities, strict=True)),
        zip(read["holds"], yes_or_no, strict=True),
    )
    measures = {
        "auroc": np.mean([roc_auc_score(holds, cosines) for holds, cosines, _ in rows]),
        "auroc yes or no": np.mean([roc_auc_score(holds, pair @ [1, -1]) for holds, pair in answers]),
        "balanced accuracy": np.mean([balanced_accuracy_score(holds, row > 0.5) for holds, _, row in rows]),
        "complement": np.abs(probabilities + negated - 1).mean(),
    }
    return {name: round(100 * float(value), 1) for name, value in measures.items()}


def measure_model(model: InBedder, data: Path) -> dict[str, Any]:
    """Fit the constants, and measure all sets with them."""
    sets = yaml.safe_load((Path(__file__).parent / "categories.yaml").read_text(encoding="utf-8"))
    choices, statements, measured_texts = {}, {}, {}
    for title, settings in sets.items():
        rows, examples = load_set(data, settings)
        texts, labels = (list(column) for column in zip(*rows[: 2 * ROWS], strict=True))
        names = list(examples)
        scores = classify(texts, settings["question"], names, model=model, **OPTIONS).scores
        choices[title] = scores, np.array([names.index(label) for label in labels])
        statements[title] = [
            read_statements(model, texts[half], labels[half], STATEMENTS[title]) for half in (slice(ROWS), slice(ROWS, None))
        ]
        measured_texts[title] = texts[ROWS:]
    temperatures = [fit_temperature(scores[:ROWS], numbers[:ROWS]) for scores, numbers in choices.values()]
    fitted = [read[0] for read in statements.values()]
    constants = fit_statements(*(np.concatenate([read[name].ravel() for read in fitted]) for name in ("cosines", "holds")))
    results: dict[str, Any] = {
        "revision": model.revision,
        "fitted": {
            "temperature by set": [round(value, 3) for value in temperatures],
            "STATEMENT_THRESHOLD, STATEMENT_TEMPERATURE": [round(value, 3) for value in constants],
        },
        "sets": [],
    }
    for title, (scores, numbers) in choices.items():
        probabilities = decisions.compute_option_probabilities(scores[ROWS:])
        record = {"set": title, "choice": measure_probabilities(probabilities, numbers[ROWS:])}
        results["sets"].append({**record, "statement": measure_statements(model, measured_texts[title], statements[title][1])})
    rows = list(read_rows(str(data / "sentconv_sst5/dev.jsonl.gz")))[:ROWS]
    cosines = compute_cosines(model, [row["text"] for row in rows], "Is the review positive or negative?", LEVELS, is_asked=True)
    scale = decisions.compute_option_probabilities(cosines) @ np.arange(len(LEVELS))
    results["SST-5"] = round(100 * float(spearmanr(scale, [row["label"] for row in rows]).statistic), 1)
    return results


def main() -> None:
    """Measure each model."""
    parser = make_parser(__doc__, ROOT / "evaluation/results/decisions.json", reads_data=True)
    parser.add_argument("--model", action="append", required=True)
    options = parser.parse_args()
    results: dict[str, Any] = {**describe_run(options), "models": {}}
    for name in options.model:
        results["models"][name] = measure_model(InBedder(name), options.data)
        print(name, json.dumps(results["models"][name], indent=1), flush=True)
    write_results(options.output, results)


if __name__ == "__main__":
    main()
