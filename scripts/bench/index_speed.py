"""Measure time per query, time per new question and disk size of an index, by rows: the part ``index`` of ``large_corpora``.

The base encoder's vectors are synthetic (random, around 200 centres); the texts are the demo's reviews with a number appended.
"cold" is the first search of an opened index under an instruction, which encodes query and candidates; "warm" repeats it ("cpu":
CPU time of this process); "engine" finds the candidates and does not rank them again. Recall of an approximate index is the share
of the exact 200 nearest rows that it finds. ``seconds_to_ask`` groups all rows by a new question, of which 1,000 are read;
``seconds_to_read`` is the time in which the same process would read all under it, computed from 1,000.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from inbedder import InBedder
from inbedder.search import Index
from inbedder.search.arrow import build_schema, build_table, to_list_array, to_matrix
from inbedder.search.asking import read_rows_to_group
from inbedder.search.index_rows import Rows
from inbedder.search.ranking import find_candidates
from inbedder.search.storage import Storage
from inbedder.vectors.vectors import Vectors, normalize_vectors
from scripts.bench.harness import REVIEWS

QUESTION = "What does the customer talk about?"
QUERIES = ("the waiter was rude", "cold food", "great haircut", "my phone broke", "long queue")
ASKED, GROUPS, SAMPLE = "What kind of place is it?", 20, 1000
WIDTH, CENTRES, BATCH, REPEATS, CANDIDATES = 384, 200, 20_000, 5, 200


def make_vectors(count: int, draw: np.random.Generator, centres: Vectors) -> Vectors:
    """Make random unit vectors around centres."""
    return normalize_vectors(
        centres[draw.integers(len(centres), size=count)] + draw.normal(size=(count, WIDTH), scale=0.05).astype(np.float32)
    )


def build(folder: Path, count: int, model: InBedder) -> Storage:
    """Build an index of synthetic vectors."""
    with REVIEWS.open(encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    schema = build_schema(Rows([], [], {}), WIDTH, WIDTH)
    storage = Storage.create(folder, schema, model.spec)
    draw = np.random.default_rng(0)
    centres = normalize_vectors(draw.normal(size=(CENTRES, WIDTH)).astype(np.float32))
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        columns: dict[str, Any] = {
            "id": [str(number) for number in numbers],
            "text": [f"{texts[n % len(texts)]} ({n})" for n in numbers],
        }
        vectors = make_vectors(len(numbers), draw, centres)
        columns |= {"generic": to_list_array(vectors), "earlier_layer": to_list_array(vectors[:, ::-1], np.float16)}
        storage.append(build_table(columns, storage.table.schema))
    storage.compact(timedelta(milliseconds=1))
    storage.make_indexes()
    storage.set_metadata("text", built="yes")
    return storage


def measure_milliseconds(function: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Time repeated calls."""
    results = []
    for _ in range(repeats):
        start_time = time.perf_counter()
        function()
        results.append(round(1000 * (time.perf_counter() - start_time), 1))
    return results


def measure_recall(storage: Storage) -> float:
    """Measure the share of the exact nearest rows that the index finds, over synthetic queries."""
    draw = np.random.default_rng(1)
    centres = normalize_vectors(np.random.default_rng(0).normal(size=(CENTRES, WIDTH)).astype(np.float32))
    shares = []
    for vector in make_vectors(10, draw, centres):
        results = find_candidates(storage, vector, None, CANDIDATES, None, ["id"])[0]["id"].to_pylist()
        search = storage.table.search(vector, vector_column_name="generic").distance_type("cosine").bypass_vector_index()
        exact = search.select(["id", "_distance"]).limit(CANDIDATES).to_arrow()["id"].to_pylist()
        shares.append(len(set(results) & set(exact)) / CANDIDATES)
    return round(float(np.mean(shares)), 3)


def measure(count: int, model: InBedder, place: Path) -> dict[str, Any]:
    """Measure an index of one size."""
    folder = place / "synthetic.index"
    start_time = time.perf_counter()
    storage = build(folder, count, model)
    seconds = round(time.perf_counter() - start_time, 1)
    vector = to_matrix(pa.chunked_array([to_list_array(np.ones((1, WIDTH), dtype=np.float32))]))[0]
    columns = ["id", "text"]
    engine = measure_milliseconds(lambda: find_candidates(storage, vector, None, CANDIDATES, None, columns), 10)
    cold, warm = [], []
    busy = 0.0
    for query in QUERIES:
        index = Index.open(folder, model)
        cold += measure_milliseconds(lambda index=index, query=query: index.search(query, QUESTION, candidates=CANDIDATES), 1)
        began_busy = time.process_time()
        warm += measure_milliseconds(lambda index=index, query=query: index.search(query, QUESTION, candidates=CANDIDATES))
        busy += time.process_time() - began_busy
    results = {
        "rows": count,
        "seconds_to_build": seconds,
        "engine": storage.engine,
        "bytes": storage.size,
        "ms_engine": round(median(engine), 1),
        "ms_cold": round(median(cold), 1),
        "ms_warm": round(median(warm), 1),
        "ms_warm_all": warm,
        "cpu_ms_warm": round(1000 * busy / len(warm), 1),
    }
    rows = read_rows_to_group(storage, ASKED)["text"].to_pylist()[:SAMPLE]
    read = partial(model.encode, rows, QUESTION, show_progress_bar=False)
    milliseconds = measure_milliseconds(read, 1)[0]
    results["seconds_to_read"] = round(milliseconds / 1000 * count / len(rows))
    ask = partial(Index.open(folder, model).ask, ASKED, sample=SAMPLE, k=GROUPS)
    results["seconds_to_ask"] = round(measure_milliseconds(ask, 1)[0] / 1000, 1)
    if "exact" not in storage.engine:
        results["recall_of_exact"] = measure_recall(storage)
    shutil.rmtree(folder)
    return results


def measure_all_indexes(folder: Path, sizes: list[int]) -> dict[str, Any]:
    """Measure an index of every size."""
    model = InBedder()
    results = []
    for count in sizes:
        load = os.getloadavg()[0]
        results.append({**measure(count, model, folder), "load_average_before": round(load, 1)})
        print(json.dumps(results[-1]), flush=True)
    return {"model": f"mini in {model.compute_dtype}", "sizes": results}
