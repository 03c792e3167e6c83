"""Measure whether exact groups are the same on every machine, and what they cost.

Processes with other threads, batch sizes and instruction sets group texts of the demo under two questions, by default and with
``exact``. The SHA-256 of page and rows and the rounded values of the vectors are compared with those of the first process. Texts
are grouped in another order, too. Then labelled sets (300 rows each) are grouped in both ways, in one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import v_measure_score
from sklearn.metrics.cluster import contingency_matrix
from threadpoolctl import threadpool_limits

from inbedder import InBedder, cluster
from inbedder.grouping.partition.partition import group
from inbedder.grouping.prepare.exact import round_vectors
from inbedder.grouping.report.page import render_report
from inbedder.io.tables import read_rows
from scripts.bench.grouping.labelled_sets import load_labelled_sets
from scripts.bench.harness import ROOT

LIMIT, DEMO_TEXTS = 300, 100
VARIANTS: dict[str, tuple[int, int, dict[str, str]]] = {
    "1 thread, batch 32": (1, 32, {}),
    "2 threads, batch 1": (2, 1, {}),
    "8 threads, batch 7": (8, 7, {}),
    "SSE4, batch 256": (
        1,
        256,
        {
            "ATEN_CPU_CAPABILITY": "default",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Nehalem",
        },
    ),
}
"""Threads, batch size and environment variables, by name; the instruction set is the machine's own unless named."""
QUESTIONS = {
    "bank_questions": ("What does the customer need?", "How does the customer feel?"),
    "reviews": ("What is being reviewed?", "Is the review positive or negative?"),
}
LABELLED_SETS = ("amazon_multidomain domain", "clinc150 domain", "trec_questions")
WAYS = ("default", "exact")


def load_texts(demo: str) -> list[str]:
    """Load the first texts of a demo."""
    return [str(row["text"]) for row in read_rows(str(ROOT / f"inbedder/demo_texts/{demo}.csv"))][:DEMO_TEXTS]


def load_models(model: str) -> dict[str, InBedder]:
    """Load the model of each way."""
    return {"default": InBedder(model), "exact": InBedder(model, dtype="float64")}


def group_demos(model: str, batch_size: int, output: str) -> None:
    """Group the texts in both ways, and save the SHA-256 of pages and rows, and the rounded vectors.

    Args:
        model: Its name.
        batch_size: Of the reading.
        output: An .npz file.
    """
    arrays = {}
    for way, embedder in load_models(model).items():
        for demo, questions in QUESTIONS.items():
            texts = load_texts(demo)
            results = [
                cluster(texts, question, embedder, exact=way == "exact", batch_size=batch_size, show_progress_bar=False)
                for question in questions
            ]
            contents = {"page": render_report(results), "rows": json.dumps([result.rows(top=3) for result in results])}
            for name, content in contents.items():
                arrays[f"{way} {demo} {name}"] = np.array(hashlib.sha256(content.encode()).hexdigest())
            arrays[f"{way} {demo} vectors"] = np.stack([round_vectors(result.embeddings) for result in results])
    np.savez(output, **arrays)


def run_variant(model: str, variant: str, folder: str) -> dict[str, Any]:
    """Run ``group_demos`` in a process of its own, and load what it saves."""
    threads, batch_size, variables = VARIANTS[variant]
    output = str(Path(folder, "groups.npz"))
    call = f"from scripts.bench.grouping.exact import group_demos; group_demos({model!r}, {batch_size}, {output!r})"
    subprocess.run(
        [sys.executable, "-c", call], check=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)} | variables, cwd=ROOT
    )
    with np.load(output) as saved:
        return dict(saved)


def measure_variants(model: str) -> list[dict[str, Any]]:
    """Count the pages and rows and the rounded values of each variant that differ from those of the first."""
    rows = []
    reference: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for variant in VARIANTS:
            arrays = run_variant(model, variant, folder)
            reference = reference or arrays
            for way, demo in product(WAYS, QUESTIONS):
                files = {name: str(arrays[f"{way} {demo} {name}"]) for name in ("page", "rows")}
                vectors, expected = arrays[f"{way} {demo} vectors"], reference[f"{way} {demo} vectors"]
                row = {"way": way, "set": demo, "variant": variant, "values": vectors.size}
                row["values that differ"] = int((vectors != expected).sum())
                row["files that differ"] = sum(files[name] != str(reference[f"{way} {demo} {name}"]) for name in files)
                rows.append(row | {f"SHA-256 of {name}": digest[:16] for name, digest in files.items()})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def measure_order(models: dict[str, InBedder], demo: str) -> list[dict[str, Any]]:
    """Count the texts that are in another group if the texts come in another order, by way; groups are matched one to one."""
    texts = load_texts(demo)
    order = np.random.default_rng(0).permutation(len(texts))
    rows = []
    for way, model in models.items():
        vectors = model.encode(texts, QUESTIONS[demo][0])
        vectors = round_vectors(vectors) if way == "exact" else vectors
        first, second = group(vectors), group(vectors[order])
        shared = contingency_matrix(first[order], second)
        moved = len(texts) - int(shared[linear_sum_assignment(-shared)].sum())
        rows.append(
            {"way": way, "set": demo, "groups": [*map(int, (first.max() + 1, second.max() + 1))], "texts in another group": moved}
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def measure_quality(models: dict[str, InBedder], data: Path) -> list[dict[str, Any]]:
    """Measure the V-measure of the groups, and CPU seconds of reading and grouping, by model."""
    rows = []
    for labelled in load_labelled_sets(data, LIMIT):
        if labelled.name not in LABELLED_SETS:
            continue
        row: dict[str, Any] = {"set": labelled.name, "texts": len(labelled.texts)}
        for name, model in models.items():
            times = [time.process_time()]
            vectors = model.encode(labelled.texts, labelled.instruction)
            vectors = round_vectors(vectors) if name == "exact" else vectors
            times.append(time.process_time())
            labels = group(vectors)
            times.append(time.process_time())
            by_labels = group(vectors, len(set(labelled.labels)))
            scores = [round(100 * float(v_measure_score(labelled.labels, each)), 1) for each in (labels, by_labels)]
            seconds = [round(after - before, 2) for before, after in pairwise(times)]
            names = ("V at auto", "V at the number of labels", "seconds reading", "seconds grouping")
            row[name] = dict(zip(names, (*scores, *seconds), strict=True))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def summarize(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Sum the differences and take the means over the labelled sets, by way."""
    sums = {"files that differ": "variants", "values that differ": "variants", "texts in another group": "another order"}
    return [
        {"way": way}
        | {name: sum(row[name] for row in results[part] if row["way"] == way) for name, part in sums.items()}
        | {key: round(float(np.mean([row[way][key] for row in results["sets"]])), 1) for key in results["sets"][0][way]}
        for way in WAYS
    ]


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure all of it."""
    variants = measure_variants(model.name)
    models = load_models(model.name)
    with threadpool_limits(1):
        results = {
            "variants": variants,
            "another order": measure_order(models, "bank_questions"),
            "sets": measure_quality(models, data),
        }
    return {"texts": DEMO_TEXTS, "questions": QUESTIONS, "summary": summarize(results), **results}
