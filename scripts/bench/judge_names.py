#!/usr/bin/env python3
"""Blind evaluation of group names.

python scripts/bench/judge_names.py sheet DATA OUT   # groups the demo and five sets; writes OUT/sheet.txt to read, OUT/key.json
python scripts/bench/judge_names.py table OUT -o scripts/results/names.json

In sheet.txt each group shows its labels, its most frequent answers, its most central texts and its names in random order, equal
ones once. The reader writes a mark for each name, in their order, behind "marks:": 2 where it says what the group is about and
tells it apart from the other groups of the set, 1 where it is vague or holds a word that misleads, 0 where it misleads or is
empty.
Names are judged as namers give them, before they are set apart.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

from inbedder import InBedder, cluster
from inbedder.grouping.describe.loose_groups import is_mixed
from inbedder.grouping.names.namers import NAMERS
from inbedder.grouping.names.naming import collect_contents, find_namer
from inbedder.grouping.partition.stability import describe_stability
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_table
from inbedder.vectors.vectors import normalize_vectors
from inbedder_evaluation.tasks.corpus import load_corpus

ROOT = Path(__file__).resolve().parents[2]
DEMO = [("What does the customer talk about?", 8), ("Is the review positive or negative?", 2)]
SETS = {"amazon_multidomain": 0, "airline_tweets": 0, "acos_restaurant": 0, "clinc150": 0, "hwu64": 0}
"""Which of its criteria is asked for."""
ROWS, MOST_GROUPS, ANSWERS_SHOWN, TEXTS_SHOWN, TEXT_CHARACTERS = 500, 12, 8, 4, 160


def remove_commas(name: str) -> str:
    """The name as it is read: commas would betray its namer."""
    return " ".join(name.replace(",", " ").split())


def load_corpora(data: Path) -> list[tuple[str, list[str], list[str], str, int]]:
    """Name, texts, labels, question and number of groups of each grouping that is judged."""
    demo = read_table(str(ROOT / "inbedder" / "demo_texts" / "reviews.csv"))
    corpora = [(f"demo: {question}", demo.texts, demo.column("polarity"), question, k) for question, k in DEMO]
    for name, criterion in SETS.items():
        corpus = load_corpus(name, data, ROWS)
        labels = corpus.labels[criterion]
        corpora.append((name, corpus.texts, labels, corpus.instructions[criterion], min(MOST_GROUPS, len(set(labels)))))
    return corpora


def write_sheet(data: Path, folder: Path, model_name: str, cache: Path | None) -> None:
    """Write what is to be read, and which namer gave which name."""
    model = InBedder(model_name, cache=cache)
    namers: dict[str, Any] = {name: find_namer(name, model) for name in NAMERS}
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


def write_table(folder: Path, output: Path) -> None:
    """Count the marks."""
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
    results = {
        "command": "python scripts/bench/judge_names.py sheet DATA OUT; a reader; "
        "python scripts/bench/judge_names.py table OUT -o "
        "scripts/results/names.json",
        "description": f"{content['model']}, {ROWS} texts per set, at most {MOST_GROUPS} groups; one reader, blind to the namer; "
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
    with atomic_write(output) as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Write the sheet, or count its marks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="step", required=True)
    first = commands.add_parser("sheet")
    first.add_argument("data", type=Path)
    first.add_argument("folder", type=Path)
    first.add_argument("--cache", type=Path)
    first.add_argument("--model", default="mini")
    second = commands.add_parser("table")
    second.add_argument("folder", type=Path)
    second.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    if options.step == "sheet":
        write_sheet(options.data, options.folder, options.model, options.cache)
    else:
        write_table(options.folder, options.output)


if __name__ == "__main__":
    main()
