#!/usr/bin/env python3
"""How well nearest neighbours fit with a question and without (nDCG@20): posts to newsgroups, subject lines, abstracts of papers.

python scripts/bench/measure_neighbours.py DATA QA JUDGE --model mini -o finetune/results/mini_neighbours.json

DATA holds mini_newsgroups20, QA pubmedqa.jsonl.gz, JUDGE is all-mpnet-base-v2. Neighbours of a post, or of its subject line, are
relevant when they are of its group. An abstract's ten relevant ones are, for the problem, those whose titles are nearest to its
own by JUDGE and, for the result, those whose conclusions are; titles and conclusions are no part of the texts. Each score under a
question is followed by its difference from the score without one and the 95% interval of that difference (bootstrap over texts).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.metrics import ndcg_score
from sklearn.metrics.pairwise import cosine_similarity

from inbedder import InBedder
from inbedder.io.tables import read_rows
from inbedder.vectors import Vectors

DEPTH = 20
RELEVANT = 10
DRAWS = 2000
TOPIC = ("Categorize the topic of the news article.", "What are people discussing?", "Which newsgroup is it from?")
PROBLEM = ("What problem does the paper address?", "Which scientific question does the paper try to answer?")
RESULT = ("What are the findings of the paper?", "Which result do the researchers report?")


Read = Callable[[list[str], str | None], Vectors]
"""Gives vectors of texts under a question or without one."""


class Searched(NamedTuple):
    """Texts, which of them are relevant to which, and what is asked."""

    name: str
    texts: list[str]
    relevant: NDArray[np.bool_]
    questions: tuple[str, ...]


def load_posts(folder: Path, limit: int) -> list[Searched]:
    """Posts of 300 to 6,000 characters, and their subject lines; relevant are those of the same group."""
    rows = [row for row in read_rows(str(folder / "mini_newsgroups20" / "all.jsonl.gz")) if 300 <= len(row["text"]) <= 6000]
    rows = random.Random(0).sample(rows, min(limit, len(rows)))
    groups = np.array([row["label"] for row in rows])
    same_group = groups[:, None] == groups
    names = {"posts by newsgroup": "text", "subject lines by newsgroup": "subject"}
    return [Searched(name, [row[field] for row in rows], same_group, TOPIC) for name, field in names.items()]


def load_abstracts(folder: Path, judge: SentenceTransformer) -> list[Searched]:
    """Abstracts by problem and by result."""
    rows = list(read_rows(str(folder / "pubmedqa.jsonl.gz")))
    texts = [row["input"] for row in rows]
    facets = {"abstracts by problem": ("instruction", PROBLEM), "abstracts by result": ("output", RESULT)}
    return [
        Searched(name, texts, find_nearest(judge.encode([row[field] for row in rows])), questions)
        for name, (field, questions) in facets.items()
    ]


def find_nearest(vectors: Vectors) -> NDArray[np.bool_]:
    """Which ten rows are the nearest to each, by cosine: bool, shape (n, n)."""
    is_near = np.zeros((len(vectors), len(vectors)), dtype=bool)
    np.put_along_axis(is_near, np.argsort(-compute_cosines(vectors), axis=1)[:, :RELEVANT], True, axis=1)
    return is_near


def compute_cosines(vectors: Vectors) -> NDArray[Any]:
    """Cosines between rows, a row's own below all; shape (n, n)."""
    cosines: NDArray[Any] = cosine_similarity(vectors)
    np.fill_diagonal(cosines, -2)
    return cosines


def ndcg(vectors: Vectors, relevant: NDArray[np.bool_]) -> NDArray[np.float64]:
    """NDCG@20 of each row's neighbours, times 100, shape (n,)."""
    relevant_others, cosines = relevant & ~np.eye(len(relevant), dtype=bool), compute_cosines(vectors)
    return 100 * np.array([ndcg_score(relevant_others[[row]], cosines[[row]], k=DEPTH) for row in range(len(relevant_others))])


def compare(instructed: NDArray[np.float64], unasked: NDArray[np.float64]) -> str:
    """The mean score under a question, and its difference from the mean score without one."""
    differences = instructed - unasked
    sampled_means = np.random.default_rng(0).choice(differences, (DRAWS, len(differences))).mean(axis=1)
    low, high = np.quantile(sampled_means, (0.025, 0.975))
    return f"{instructed.mean():.1f} ({differences.mean():+.1f} [{low:.1f}, {high:.1f}])"


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
    searched = [*load_posts(options.data, options.limit), *load_abstracts(options.qa, SentenceTransformer(str(options.judge)))]
    instructed = [(one.name, question) for one in searched for question in ("nothing", *one.questions)]
    models: dict[str, Read] = {name: InBedder(name).encode for name in options.model}
    rows = [["neighbours of", "asked", *models], *map(list, instructed)]
    for encode in models.values():
        unasked: dict[str, NDArray[np.float64]] = {}
        for row in rows[1:]:
            one = next(one for one in searched if one.name == row[0])
            scores = ndcg(np.asarray(encode(one.texts, None if row[1] == "nothing" else row[1])), one.relevant)
            row.append(compare(scores, unasked[one.name]) if one.name in unasked else f"{scores.mean():.1f}")
            unasked.setdefault(one.name, scores)
            print(*row, sep=" | ", flush=True)
    arguments = " ".join(f"--model {name}" for name in options.model)
    command = f"python scripts/bench/measure_neighbours.py DATA QA JUDGE {arguments} --limit {options.limit} -o {options.output}"
    is_near = {"command": command, "texts": {one.name: len(one.texts) for one in searched}, "table": rows}
    options.output.write_text(json.dumps(is_near, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
