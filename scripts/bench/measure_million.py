#!/usr/bin/env python3
"""What it takes to group a million vectors that lie in a file: seconds and memory, for a given number of groups and for "auto".

python scripts/bench/measure_million.py --machine "2-core AMD EPYC, avx512_bf16" -o evaluation/results/million.json

The vectors are made up: texts of so many groups around random centres. They are read from the file as it goes (``np.load`` with
``mmap_mode``), so that what counts is the memory of the process itself, without the pages of the file that the system keeps.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from inbedder.grouping.partition.partition import partition
from inbedder.io.files import atomic_write
from inbedder.io.outputs import open_vector_writer

WIDTH, GROUPS, BLOCK, SPREAD = 384, 30, 10_000, 0.05


def get_memory_mib() -> float:
    """Memory of this process that is no file's, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def write_vectors(path: Path, count: int) -> None:
    """Make up vectors, and write them block by block."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(GROUPS, WIDTH)) / np.sqrt(WIDTH)
    with open_vector_writer(path, count) as writer:
        for place in range(0, count, BLOCK):
            kinds = draw.integers(GROUPS, size=min(BLOCK, count - place))
            rows = centres[kinds] + SPREAD * draw.normal(size=(len(kinds), WIDTH))
            writer.add(range(len(kinds)), [""] * len(kinds), rows.astype(np.float32))


def measure(path: Path, k: int | str) -> dict[str, Any]:
    """Group the vectors of a file."""
    vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    before, most, stop_event = get_memory_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not stop_event.wait(0.02):
            most[0] = max(most[0], get_memory_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start_time, cpu = time.perf_counter(), time.process_time()
    groups = partition(vectors, k)
    seconds, cpu = time.perf_counter() - start_time, time.process_time() - cpu
    stop_event.set()
    watcher.join()
    return {
        "rows": len(vectors),
        "k": k,
        "groups": int(groups.labels.max()) + 1,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "added_memory_mb": round(most[0] - before),
        "vectors_mb": round(vectors.nbytes / 1e6),
    }


def make_table(cases: list[dict[str, Any]]) -> list[list[str]]:
    """One row per case, the header first."""
    rows = [["rows", "k", "groups", "seconds", "CPU seconds", "memory above, MB", "vectors, MB"]]
    columns = ("groups", "seconds", "cpu_seconds", "added_memory_mb", "vectors_mb")
    return [*rows, *([f"{case['rows']:,}", str(case["k"]), *(str(case[name]) for name in columns)] for case in cases)]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    options = parser.parse_args()
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = Path(folder) / f"{rows}.npy"
            write_vectors(path, rows)
            partition(np.load(path, mmap_mode="r", allow_pickle=False)[:1000], 2)  # whatever is loaded once is loaded now
            for k in (GROUPS, "auto"):
                cases.append(measure(path, k))
                print(cases[-1], flush=True)
            path.unlink()
    results = {
        "command": "python scripts/bench/measure_million.py -o evaluation/results/million.json",
        "description": f"made-up vectors of {WIDTH} numbers around {GROUPS} centres, mapped from a file; memory above the start",
        "machine": options.machine,
        "table": make_table(cases),
        "cases": cases,
    }
    with atomic_write(options.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
