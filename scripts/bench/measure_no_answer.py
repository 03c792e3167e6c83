#!/usr/bin/env python3
"""How well texts that give no answer to a question are told from those that do.

python scripts/bench/measure_no_answer.py DATA FRIENDSQA -o evaluation/results/no_answer.json

Each set has texts with and without an answer, at most 1,000 of each. The measure is the cosine to the vector of an empty text
under the same question: the area under its ROC curve, and the shares of both kinds that ``find_unanswered`` takes. Lines of
FRIENDSQA, a file of dialogues, answer if they hold three words that are no stopwords, and do not if they hold none.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from inbedder import InBedder
from inbedder.grouping.names.phrase_names import split_line
from inbedder.grouping.prepare.no_answer import REFERENCE_LINES, find_unanswered
from inbedder.io.files import atomic_write
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import normalize_vectors

LIMIT = 1000
Texts = tuple[list[str], list[str]]


def load_sets(folder: Path, dialogues: Path) -> dict[str, tuple[str, Texts]]:
    """Question, texts with an answer and texts without one, by name of the set."""
    requests = read_rows(str(folder / "clinc150/test.jsonl.gz"))
    tweets = [row for row in read_rows(str(folder / "airline_tweets/all.jsonl.gz")) if row["negative_reason"]]
    return {
        "clinc150: small talk": (
            "What is it about?",
            (
                [row["text"] for row in requests if row["domain"] not in ("small_talk", "oos")],
                [row["text"] for row in requests if row["domain"] == "small_talk"],
            ),
        ),
        "lines of a sitcom": ("What is it about?", _split_dialogues(dialogues)),
        "airline_tweets: Can't Tell": (
            "What is the complaint about?",
            (
                [row["text"] for row in tweets if row["negative_reason"] != "Can't Tell"],
                [row["text"] for row in tweets if row["negative_reason"] == "Can't Tell"],
            ),
        ),
    }


def _split_dialogues(path: Path) -> Texts:
    lines = dict.fromkeys(
        line.split(": ", 1)[1] for row in read_rows(str(path)) for line in row["input"].splitlines() if ": " in line
    )
    counts = {line: sum(len(word) > 1 for word in split_line(line)) for line in lines}
    return [line for line in lines if counts[line] >= 3], [line for line in lines if not counts[line]]


def measure(model: InBedder, question: str, texts: Texts) -> dict[str, Any]:
    """Measure one set."""
    answered, unanswered = (Random(0).sample(kind, min(LIMIT, len(kind))) for kind in texts)
    reference_vectors = normalize_vectors(model.encode(list(REFERENCE_LINES), question))
    vectors = normalize_vectors(model.encode([*answered, *unanswered], question))
    is_unanswered = np.arange(len(vectors)) >= len(answered)
    is_taken = find_unanswered(vectors, reference_vectors)
    result: dict[str, Any] = {"question": question, "answered": len(answered), "unanswered": len(unanswered)}
    shares = {
        "auroc": roc_auc_score(is_unanswered, vectors @ reference_vectors[0]),
        "found": is_taken[is_unanswered].mean(),
        "taken wrongly": is_taken[~is_unanswered].mean(),
    }
    result |= {name: round(100 * float(share), 1) for name, share in shares.items()}
    return result


def main() -> None:
    """Measure all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of the sets")
    parser.add_argument("dialogues", type=Path, metavar="FRIENDSQA")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    model, sets = InBedder(), []
    for name, (question, texts) in load_sets(options.data, options.dialogues).items():
        sets.append({"set": name, **measure(model, question, texts)})
        print(json.dumps(sets[-1]), flush=True)
    results = {"command": str(__doc__).splitlines()[2], "model": f"mini (revision {model.revision})", "sets": sets}
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
