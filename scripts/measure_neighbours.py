#!/usr/bin/env python3
"""How well nearest neighbours fit, asked and unasked (nDCG@20): posts to newsgroups, their subject lines and abstracts of papers.

python scripts/measure_neighbours.py DATA QA JUDGE --model mini -o finetune/results/mini_eleventh_neighbours.json

DATA holds mini_newsgroups20, QA pubmedqa.jsonl.gz, JUDGE is all-mpnet-base-v2. Neighbours of a post, or of its subject line, are
relevant when they are of its group. An abstract's ten relevant ones are, for the problem, those whose titles are nearest to its
own by JUDGE and, for the result, those whose conclusions are; titles and conclusions are no part of the texts. Left out are
abstracts that ``finetune/recipes/mini-eighth.yaml`` and its heirs learn from (those whose answer is "yes").
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.metrics import ndcg_score
from sklearn.metrics.pairwise import cosine_similarity

from inbedder import InBedder
from inbedder.tables import read_rows
from inbedder.vectors import Vectors

DEPTH = 20
RELEVANT = 10
TOPIC = ("Categorize the topic of the news article.", "What are people discussing?", "Which newsgroup is it from?")
PROBLEM = ("What problem does the paper address?", "Which scientific question does the paper try to answer?")
RESULT = ("What are the findings of the paper?", "Which result do the researchers report?")


class Searched(NamedTuple):
    """Texts, which of them are relevant to which, and what is asked."""

    name: str
    texts: list[str]
    relevant: NDArray[np.bool_]
    questions: tuple[str, ...]


def posts(folder: Path, limit: int) -> list[Searched]:
    """Posts of 300 to 6,000 characters, and their subject lines; relevant are those of the same group."""
    rows = [row for row in read_rows(str(folder / "mini_newsgroups20" / "all.jsonl.gz")) if 300 <= len(row["text"]) <= 6000]
    rows = random.Random(0).sample(rows, min(limit, len(rows)))
    groups = np.array([row["label"] for row in rows])
    same = groups[:, None] == groups
    names = {"posts by newsgroup": "text", "subject lines by newsgroup": "subject"}
    return [Searched(name, [row[field] for row in rows], same, TOPIC) for name, field in names.items()]


def abstracts(folder: Path, judge: SentenceTransformer) -> list[Searched]:
    """Abstracts by problem and by result."""
    rows = [row for row in read_rows(str(folder / "pubmedqa.jsonl.gz")) if row["decision"] != "yes"]
    texts = [row["input"] for row in rows]
    facets = {"abstracts by problem": ("instruction", PROBLEM), "abstracts by result": ("output", RESULT)}
    return [
        Searched(name, texts, nearest(judge.encode([row[field] for row in rows])), questions)
        for name, (field, questions) in facets.items()
    ]


def nearest(vectors: Vectors) -> NDArray[np.bool_]:
    """Which ten rows are the nearest to each, by cosine: bool, shape (n, n)."""
    found = np.zeros((len(vectors), len(vectors)), dtype=bool)
    np.put_along_axis(found, np.argsort(-cosines_of(vectors), axis=1)[:, :RELEVANT], True, axis=1)
    return found


def cosines_of(vectors: Vectors) -> NDArray[Any]:
    """Cosines between rows, a row's own below all; shape (n, n)."""
    cosines: NDArray[Any] = cosine_similarity(vectors)
    np.fill_diagonal(cosines, -2)
    return cosines


def ndcg(vectors: Vectors, relevant: NDArray[np.bool_]) -> float:
    """NDCG@20, times 100."""
    return 100 * float(ndcg_score(relevant & ~np.eye(len(relevant), dtype=bool), cosines_of(vectors), k=DEPTH))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("qa", type=Path)
    parser.add_argument("judge", type=Path)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--limit", type=int, default=600, help="posts at most")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    searched = [*posts(options.data, options.limit), *abstracts(options.qa, SentenceTransformer(str(options.judge)))]
    asked = [(one.name, question) for one in searched for question in ("nothing", *one.questions)]
    rows = [["neighbours of", "asked", *options.model], *map(list, asked)]
    for name in options.model:
        model = InBedder(name)
        for row in rows[1:]:
            one = next(one for one in searched if one.name == row[0])
            vectors = model.encode(one.texts, None if row[1] == "nothing" else row[1])
            row.append(f"{ndcg(np.asarray(vectors), one.relevant):.1f}")
            print(*row, sep=" | ", flush=True)
    models = " ".join(f"--model {name}" for name in options.model)
    command = f"python scripts/measure_neighbours.py DATA QA JUDGE {models} --limit {options.limit} -o {options.output}"
    found = {"command": command, "texts": {one.name: len(one.texts) for one in searched}, "table": rows}
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
