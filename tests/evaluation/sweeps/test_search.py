import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("lancedb")

from inbedder_evaluation.sweeps.search import CANDIDATES, measure, ndcg, recall

RESULTS = json.loads((Path(__file__).parents[3] / "evaluation" / "results" / "search.json").read_text(encoding="utf-8"))[
    "results"
]


def test_ndcg_of_a_perfect_a_reversed_and_a_mixed_order():
    relevant = np.array([True, True, False, False])
    assert ndcg(np.array([0, 1, 2, 3]), relevant) == 1
    assert ndcg(np.array([0, 2, 1, 3]), relevant) == pytest.approx((1 + 1 / 2) / (1 + 1 / np.log2(3)))
    assert ndcg(np.array([2, 3, 0, 1]), relevant) == pytest.approx((1 / 2 + 1 / np.log2(5)) / (1 + 1 / np.log2(3)))
    assert ndcg(np.array([0, 1]), np.zeros(2, dtype=bool)) == 0


def test_ndcg_looks_at_the_first_ten_alone():
    relevant = np.zeros(30, dtype=bool)
    relevant[10:] = True
    assert ndcg(np.arange(30), relevant) == 0


def test_recall_counts_relevant_rows_out_of_those_that_fit():
    relevant = np.array([True, True, True, False])
    assert recall(np.array([0, 3]), relevant) == 0.5
    assert recall(np.arange(4), relevant) == 1


def test_rereading_all_candidates_is_reading_all_rows():
    draw = np.random.default_rng(0)
    vectors = {name: draw.normal(size=(40, 8)).astype(np.float32) for name in ("base", "instructed", "guided")}
    vectors = {name: values / np.linalg.norm(values, axis=1, keepdims=True) for name, values in vectors.items()}
    corpus = SimpleNamespace(labels=([str(row % 3) for row in range(40)], []))
    scores = measure(corpus, 0, vectors, np.arange(40), "base")
    assert all(scores[f"rerank {count}"] == scores["instructed"] for count in CANDIDATES)
    assert scores["recall 500"] == 100


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: f"{row['set']}: {row['criterion']}")
def test_reranking_two_hundred_comes_within_eight_percent_of_reading_all(row):
    assert row["scores"]["rerank 200, weight auto"] >= 0.92 * row["scores"]["instructed"]


@pytest.mark.parametrize("criterion", ["polarity", "airline"])
def test_reranking_wins_a_fifth_where_generic_vectors_miss_the_criterion(criterion):
    (scores,) = [row["scores"] for row in RESULTS if row["criterion"] == criterion]
    assert scores["rerank 200, weight auto"] >= 1.2 * scores["base"]
