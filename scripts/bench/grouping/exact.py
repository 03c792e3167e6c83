"""Measure whether exact groups are the same on every machine, and what they cost.

Processes of their own group the demo's texts under three questions, with other instruction sets, threads and batch sizes; the
files are compared by their SHA-256, without ``--exact`` too. The rounded values of their vectors are compared in float32 and in
float64. Then labelled sets (300 rows each) are grouped with and without ``--exact``, in one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.metrics import v_measure_score
from threadpoolctl import threadpool_limits

from inbedder import InBedder
from inbedder.grouping.partition.partition import group
from inbedder.grouping.prepare.exact import round_vectors
from scripts.bench.grouping.labelled_sets import load_labelled_sets
from scripts.bench.harness import ROOT

LIMIT = 300
NO_AVX2 = {"ATEN_CPU_CAPABILITY": "default", "NPY_DISABLE_CPU_FEATURES": "X86_V3"}
VARIANTS: dict[str, tuple[int, int, dict[str, str]]] = {
    "1 thread, batch 32": (1, 32, {}),
    "8 threads, batch 7": (8, 7, {}),
    "SSE4, batch 256": (
        1,
        256,
        NO_AVX2 | {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Nehalem"},
    ),
    "2 threads, batch 1": (2, 1, {}),
    "AVX, batch 32": (1, 32, NO_AVX2 | {"ONEDNN_MAX_CPU_ISA": "AVX", "MKL_CBWR": "AVX", "OPENBLAS_CORETYPE": "Sandybridge"}),
}
"""Threads, batch size and environment variables, by name; the instruction set is the machine's own unless named."""
QUESTIONS = {
    "bank_questions": ("What does the customer need?", "What is it about?", "How does the customer feel?"),
    "reviews": ("What is being reviewed?", "Is the review positive or negative?", "What is the complaint about?"),
}
LABELLED_SETS = (
    "amazon_multidomain domain",
    "airline_tweets negative_reason",
    "acos_restaurant categories",
    "acos_restaurant sentiments",
    "clinc150 domain",
    "stackoverflow_titles",
    "banking77",
    "trec_questions",
)


def run_variant(variant: str, *arguments: str) -> None:
    """Run a command of inbedder in a process of its own."""
    threads, batch_size, variables = VARIANTS[variant]
    command = [sys.executable, "-m", "inbedder", *arguments, "--batch-size", str(batch_size)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)} | variables
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=ROOT)


def hash_files(demo: str, variant: str, *options: str) -> dict[str, str]:
    """Group a demo's texts; return the beginning of the SHA-256 of page and table."""
    questions = [argument for question in QUESTIONS[demo] for argument in ("-i", question)]
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("report.html", "groups.csv")]
        outputs = [argument for path in paths for argument in ("-o", str(path))]
        run_variant(variant, "cluster", f"inbedder/demo_texts/{demo}.csv", *questions, *outputs, *options)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}


def embed(demo: str, variant: str, dtype: str) -> Any:
    """Embed a demo's texts under its first question, rounded."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "vectors.npy")
        source, question = f"inbedder/demo_texts/{demo}.csv", QUESTIONS[demo][0]
        run_variant(variant, "embed", source, "-i", question, "-o", str(path), "--dtype", dtype)
        return round_vectors(np.load(path))


def measure_differences(demo: str) -> list[dict[str, Any]]:
    """Count the rounded values that differ from those of the first variant."""
    rows = []
    for dtype in ("float32", "float64"):
        reference, *vectors = [embed(demo, variant, dtype) for variant in VARIANTS]
        counts = [int((reference != each).sum()) for each in vectors]
        rows.append({"set": demo, "dtype": dtype, "values": reference.size} | dict(zip([*VARIANTS][1:], counts, strict=True)))
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


def measure(model: InBedder, data: Path) -> dict[str, Any]:
    """Measure all of it; the model is the one without ``--exact``."""
    hashes = []
    for demo in QUESTIONS:
        for variant in VARIANTS:
            hashes.append({"set": demo, "variant": variant, "exact": hash_files(demo, variant, "--exact")})
            print(json.dumps(hashes[-1]), flush=True)
        for variant in [*VARIANTS][:2]:
            hashes.append({"set": demo, "variant": variant, "default": hash_files(demo, variant)})
            print(json.dumps(hashes[-1]), flush=True)
    differences = measure_differences("bank_questions")
    with threadpool_limits(1):
        quality = measure_quality({"default": model, "exact": InBedder(model.name, dtype="float64")}, data)
    means = {
        name: {key: round(float(np.mean([row[name][key] for row in quality])), 2) for key in quality[0][name]}
        for name in ("default", "exact")
    }
    return {"questions": QUESTIONS, "hashes": hashes, "rounded values that differ": differences, "sets": quality, "means": means}
