#!/usr/bin/env python3
"""Evaluate what a reader marked: names of groups without knowing the namer, and answers by their confidence.

    python -m scripts.bench.judged sheet DATA OUT     (groups the demo and five sets; writes OUT/sheet.txt and OUT/key.json)
    python -m scripts.bench.judged table OUT          (counts the marks; writes scripts/results/names.json)
    python -m scripts.bench.judged confidence         (writes scripts/results/confidence.json)

In sheet.txt each group shows its labels, its most frequent answers, its most central texts and its names in random order, equal
names once. After "marks:" the reader writes a mark for each name, in their order: 2 if it says what the group is about and
distinguishes it from the other groups of the set, 1 if it is vague or has a misleading word, 0 if it misleads or is empty. Names
are marked as namers return them, before equal names are distinguished. ``confidence`` counts the right answers above a confidence
in ``finetune/results/judged_answers.csv``, and omits answers that differ now, for instance on another CPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

from inbedder import InBedder, cluster
from inbedder.encoding.prompt_runner import RunOptions
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.names.namers import NAMERS
from inbedder.grouping.names.naming import collect_contents, find_namer
from inbedder.grouping.partition.stability import describe_stability
from inbedder.io.tables import read_table
from inbedder.vectors.vectors import normalize_vectors
from inbedder_evaluation.tasks.corpus import load_corpus
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import REVIEWS, ROOT, describe_run, make_parser, write_results

DEMO = [("What does the customer talk about?", 8), ("Is the review positive or negative?", 2)]
SETS = {"amazon_multidomain": 0, "airline_tweets": 0, "acos_restaurant": 0, "clinc150": 0, "hwu64": 0}
"""Index of the criterion that is asked for, by set."""
ROWS, MAX_GROUPS, ANSWERS_SHOWN, TEXTS_SHOWN, TEXT_CHARACTERS = 500, 12, 8, 4, 160
THRESHOLDS = (0.0, 0.3, 0.5, 0.7)
"""Minimum confidences."""


def remove_commas(name: str) -> str:
    """Remove commas, which would betray the namer."""
    return " ".join(name.replace(",", " ").split())


def load_corpora(data: Path) -> list[tuple[str, list[str], list[str], str, int]]:
    """List name, texts, labels, question and number of groups of each grouping."""
    demo = read_table(str(REVIEWS))
    corpora = [(f"demo: {question}", demo.texts, demo.column("polarity"), question, k) for question, k in DEMO]
    for name, criterion in SETS.items():
        corpus = load_corpus(name, data, ROWS)
        labels = corpus.labels[criterion]
        corpora.append((name, corpus.texts, labels, corpus.instructions[criterion], min(MAX_GROUPS, len(set(labels)))))
    return corpora


def write_sheet(data: Path, folder: Path, model_name: str, cache: Path | None) -> None:
    """Write the sheet for the reader, and the namer of each name."""
    model = InBedder(model_name, cache=cache)
    namers: dict[str, Any] = {name: find_namer(name) for name in NAMERS}
    draw, lines, key = random.Random(0), [], []
    for name, texts, text_labels, question, k in load_corpora(data):
        result = cluster(texts, question, model, k)
        groups = collect_contents(texts, result.answers, normalize_vectors(result.embeddings), result.labels, result.keywords)
        names = {namer: call(groups) for namer, call in namers.items()}
        lines += ["", f"# {name}: {question} ({len(texts)} texts)"]
        for number, group in enumerate(groups):
            rows = [row for row, label in enumerate(result.labels.tolist()) if label == number]
            labels = Counter(text_labels[row] for row in rows)
            answers = Counter(group.answers).most_common(ANSWERS_SHOWN)
            by_namer = {namer: all_names[number] or ", ".join(group.keywords[:3]) for namer, all_names in names.items()}
            names_shown = sorted({remove_commas(one) for one in by_namer.values()})
            draw.shuffle(names_shown)
            lines += ["", f"[{len(key)}] {len(rows)} texts: " + ", ".join(f"{label} {n}" for label, n in labels.most_common(4))]
            lines.append("    answers: " + "; ".join(f"{answer} {n}" for answer, n in answers))
            lines += [f"    text: {' '.join(text.split())[:TEXT_CHARACTERS]}" for text in result.examples[number][:TEXTS_SHOWN]]
            lines += [f"    {chr(97 + place)}) {one}" for place, one in enumerate(names_shown)]
            lines.append("    marks:")
            purity = labels.most_common(1)[0][1] / len(rows)
            description = {
                "purity": round(purity, 3),
                "mixed": is_mixed(group),
                "stability": round((result.stability or [])[number], 3),
            }
            key.append({"set": name, "shown": names_shown, "names": by_namer, **description})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sheet.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {"model": model_name, "groups": key}
    (folder / "key.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def count_marks(folder: Path) -> dict[str, Any]:
    """Count the marks of a sheet."""
    content = json.loads((folder / "key.json").read_text(encoding="utf-8"))
    key = content["groups"]
    marked_lines = [
        line.split(":")[1].split() for line in (folder / "sheet.txt").read_text("utf-8").splitlines() if "marks:" in line
    ]
    sets: dict[str, dict[str, list[int]]] = {}
    for group, marks in zip(key, marked_lines, strict=True):
        by_name = dict(zip(group["shown"], map(int, marks), strict=True))
        for namer, name in group["names"].items():
            sets.setdefault(group["set"], {}).setdefault(namer, []).append(by_name[remove_commas(name)])
    namers = list(key[0]["names"])
    total = {namer: [one for marks in sets.values() for one in marks[namer]] for namer in namers}
    purity = {
        kind: [round(mean([group["purity"] for group in key if description(group)] or [0]), 3), sum(map(description, key))]
        for kind, description in {
            "mixed": lambda group: group["mixed"],
            "not mixed": lambda group: not group["mixed"],
            "stable": lambda group: describe_stability(group["stability"]) == "stable",
            "neither": lambda group: not describe_stability(group["stability"]),
            "shaky": lambda group: describe_stability(group["stability"]) == "shaky",
        }.items()
    }
    return {
        "description": f"{content['model']}, {ROWS} texts per set, at most {MAX_GROUPS} groups; one reader, blind to the namer; "
        "marks: 2 right, 1 vague or with a word that misleads, 0 misleading",
        "mean_mark": {namer: round(mean(marks), 2) for namer, marks in total.items()},
        "right_names": {namer: marks.count(2) for namer, marks in total.items()},
        "misleading_names": {namer: marks.count(0) for namer, marks in total.items()},
        "groups": len(key),
        "purity_of_groups": {"unit": "mean share of the most frequent label, and number of groups", **purity},
        "mean_mark_by_set": {
            name: {namer: round(mean(marks), 2) for namer, marks in by_namer.items()} for name, by_namer in sets.items()
        },
        "demo": [group["names"] for group in key if group["set"].startswith("demo")],
    }


def measure_confidence(name: str, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Measure the answers of a model at each threshold: how many are shown, and how many of those are right."""
    model = InBedder(name)
    texts, questions = ([row[column] for row in rows] for column in ("text", "instruction"))
    answers = [
        answers[0] for answers in model.pipeline.runner.answer(texts, questions, model.options.encoding.sampling, RunOptions())
    ]
    judgements = [
        (answer.confidence, row[f"{name} accepted"] == "yes")
        for row, answer in zip(rows, answers, strict=True)
        if answer.text == row[name]
    ]
    results = []
    for threshold in THRESHOLDS:
        is_right = [right for confidence, right in judgements if confidence >= threshold]
        results.append({"model": name, "min_confidence": threshold, "shown": len(is_right), "right": sum(is_right)})
    return results


def main() -> None:
    """Write the sheet, count its marks, or measure confidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    shared = {"parents": [make_parser(None, None)], "add_help": False}
    sheet, table, confidence = (commands.add_parser(part, **shared) for part in ("sheet", "table", "confidence"))
    sheet.add_argument("data", type=Path)
    sheet.add_argument("--cache", type=Path)
    sheet.add_argument("--model", default="mini")
    for command in (sheet, table):
        command.add_argument("folder", type=Path)
    confidence.add_argument("--model", action="append")
    options = parser.parse_args()
    if options.part == "sheet":
        write_sheet(options.data, options.folder, options.model, options.cache)
    elif options.part == "table":
        write_results(options.output or RESULTS / "names.json", {**describe_run(options), **count_marks(options.folder)})
    else:
        with (ROOT / "finetune/results/judged_answers.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        models = options.model or ["mini", "small", "medium"]
        results = [result for name in models for result in measure_confidence(name, rows)]
        write_results(
            options.output or RESULTS / "confidence.json",
            {**describe_run(options), "answers": len(rows), "results": results},
        )


if __name__ == "__main__":
    main()
