#!/usr/bin/env python3
"""Describe rated rows of C-STS: ratings and lengths (paper, section 3 and figure 4), and agreement of raters (Fleiss' kappa).

    python scripts/data/describe_ratings.py csts_train.csv csts_validation.csv -o ratings.json
    python scripts/data/describe_ratings.py finetune/written/csts-captions.csv finetune/written/csts.csv \
        --second finetune/written/csts-captions-second.csv -o finetune/results/ratings.json

--second names a table (pair, condition, label) of another rater's ratings of rows of the first table; it may repeat. The rows
that all raters rated are compared. The figure of the ratings is written next to the results.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from inbedder.conditional.rated_rows import MAX_RATING, MIN_RATING, RatedPair, read_rated_pairs
from inbedder.errors import InbedderError, InputError
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_rows
from inbedder_evaluation.figures import draw_bars
from inbedder_evaluation.metrics import fleiss_kappa, spearman

SCALE = range(int(MIN_RATING), int(MAX_RATING) + 1)


def describe_rows(rows: Sequence[RatedPair]) -> dict[str, Any]:
    """Describe the rows of a table: ratings, and mean lengths in words."""
    counts = Counter(round(row.label) for row in rows)
    sentences = [sentence for row in rows for sentence in (row.sentence1, row.sentence2)]
    return {
        "rows": len(rows),
        "ratings": {str(rating): counts[rating] for rating in SCALE},
        "words_per_sentence": round(mean(len(sentence.split()) for sentence in sentences), 2),
        "words_per_condition": round(mean(len(row.condition.split()) for row in rows), 2),
    }


def measure_agreement(rows: Sequence[RatedPair], other_ratings: Sequence[Path]) -> dict[str, Any]:
    """Measure the agreement of raters on the rows that all of them rated.

    Args:
        rows: The first rater's rows.
        other_ratings: A table per further rater.

    Returns:
        Numbers of raters and rows, the percentage of rows with equal ratings, Fleiss' kappa, and the mean Spearman correlation
        of the first rater with the others.

    Raises:
        InputError: If no row has a rating of each rater.
    """
    raters = [{(row.pair, row.condition): row.label for row in rows}]
    for path in other_ratings:
        raters.append({(str(row["pair"]), str(row["condition"]).strip()): float(row["label"]) for row in read_rows(str(path))})
    keys = [key for key in raters[0] if all(key in ratings for ratings in raters)]
    if not keys:
        raise InputError("No row was rated by all raters. The columns pair and condition of --second name the rows.")
    ratings = np.array([[rater[key] for rater in raters] for key in keys])
    counts = np.stack([(ratings == rating).sum(1) for rating in SCALE], axis=1)
    return {
        "raters": len(raters),
        "rows": len(keys),
        "percent_equal": round(100 * float((np.ptp(ratings, axis=1) == 0).mean()), 1),
        "fleiss_kappa": round(fleiss_kappa(counts), 3),
        "spearman": round(mean(spearman(ratings[:, 0], column) for column in ratings.T[1:]), 1),
    }


def main() -> None:
    """Describe the tables and write results and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help="rated rows, as of csts_train.csv")
    parser.add_argument("--second", type=Path, action="append", default=[], help="another rater's ratings; may repeat")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a .json file")
    options = parser.parse_args()
    tables = {path.name: read_rated_pairs(path) for path in options.tables}
    results: dict[str, Any] = {"command": shlex.join(["python", *sys.argv])}
    results["tables"] = {name: describe_rows(rows) for name, rows in tables.items()}
    if options.second:
        results["agreement"] = measure_agreement(next(iter(tables.values())), options.second)
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    bars = {rating: {name: table["ratings"][rating] for name, table in results["tables"].items()} for rating in map(str, SCALE)}
    draw_bars(bars, options.output.with_suffix(".png"), "rows by rating")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    try:
        main()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
