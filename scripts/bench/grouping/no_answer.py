"""Measure how well texts without an answer to a question are separated from texts with an answer.

Each set has texts with and without an answer, at most 1,000 of each. The score is the cosine to the vector of an empty text under
the same question: the area under its ROC curve, and the shares of both kinds that ``find_unanswered`` takes. Lines of FriendsQA
(``DATA/friendsqa.jsonl.gz``, dialogues in a column "input") have an answer if they have three words that are not stopwords,
and no answer if they have none.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from inbedder import InBedder
from inbedder.grouping.names.phrase_names import split_line
from inbedder.grouping.prepare.no_answer import REFERENCE_LINES, find_unanswered
from inbedder.io.tables import read_rows
from inbedder.vectors.vectors import normalize_vectors

LIMIT, DIALOGUES = 1000, "friendsqa.jsonl.gz"
Texts = tuple[list[str], list[str]]


def load_sets(folder: Path) -> dict[str, tuple[str, Texts]]:
    """Load question, texts with an answer and texts without, by name of the set."""
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
        "lines of a sitcom": ("What is it about?", _split_dialogues(folder / DIALOGUES)),
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


def measure_set(model: InBedder, question: str, texts: Texts) -> dict[str, Any]:
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


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure all sets in a folder of evaluation sets."""
    sets = []
    for name, (question, texts) in load_sets(data).items():
        sets.append({"set": name, **measure_set(model, question, texts)})
        print(json.dumps(sets[-1]), flush=True)
    return {"sets": sets}
