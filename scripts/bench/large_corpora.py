#!/usr/bin/env python3
"""Measure large corpora: group a million vectors that are mapped from a file, open the report of 200,000 texts, search an index.

    python -m scripts.bench.large_corpora vectors        (writes evaluation/results/million.json)
    python -m scripts.bench.large_corpora page           (writes scripts/results/page.json; needs playwright and Chromium)
    python -m scripts.bench.large_corpora index          (writes scripts/results/index_speed.json; see ``index_speed``)

``vectors``: synthetic vectors around random centres, grouped into a given number of groups and with "auto"; seconds, and the
memory of the process without the pages of the file that the system caches. ``page``: synthetic texts of 20 words, two questions
of 12 groups, two columns, dates of a year; the time to write the page, to open it in headless Chromium, and to use it.
``longest_task`` is the longest time for which the page was frozen (the browser's longtask entries, from 50 ms on; 0: none).
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inbedder.grouping.clustering import ClusterResult
from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.compare.timelines import make_timelines
from inbedder.grouping.partition.partition import partition
from inbedder.grouping.report.page import save_report
from inbedder.io.outputs import open_vector_writer
from inbedder.prompting.stopwords import load_stopwords
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import ROOT, describe_run, make_parser, open_browser, write_results
from scripts.bench.index_speed import measure_all_indexes

if TYPE_CHECKING:
    from playwright.sync_api import Page

INDEX_SIZES = (10_000, 100_000, 1_000_000)
ROW_COUNTS, WIDTH, GROUPS, BLOCK, SPREAD = (100_000, 1_000_000), 384, 30, 10_000, 0.05
TEXT_COUNTS, PAGE_WIDTH, PAGE_GROUPS, WORDS = (1000, 5000, 50_000, 200_000), 64, 12, 20
WATCH = (
    "window.tasks = []; new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(e => e.duration)))"
    ".observe({type: 'longtask', buffered: true});"
)
SETTLED = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
USES = {
    "isolate a group": "document.querySelectorAll('.legend button')[3].click()",
    "zoom in": "document.querySelector('.zoom-in').click()",
    "show the whole map": "document.querySelector('.reset').click()",
    "colour the map by a column": (
        "(s => { s.value = '2'; s.dispatchEvent(new Event('change')); })(document.querySelector('.colour-by'))"
    ),
    "open the cross tables": "document.querySelector('#tab-cross-tables').click()",
    "open a cell": 'document.querySelector(\'.heatmap button[data-row="2"][data-column="3"]\').click()',
    "search": "(s => { s.value = 'the a'; s.dispatchEvent(new Event('input')); })(document.querySelector('.search'))",
    "search again": "(s => { s.value = 'the an'; s.dispatchEvent(new Event('input')); })(document.querySelector('.search'))",
    "make the csv": "document.querySelector('.download').click()",
}


def get_memory_mib() -> float:
    """Read the anonymous memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def write_vectors(path: Path, count: int) -> None:
    """Write synthetic vectors block by block."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(GROUPS, WIDTH)) / np.sqrt(WIDTH)
    with open_vector_writer(path, count) as writer:
        for start in range(0, count, BLOCK):
            kinds = draw.integers(GROUPS, size=min(BLOCK, count - start))
            rows = centres[kinds] + SPREAD * draw.normal(size=(len(kinds), WIDTH))
            writer.add(range(len(kinds)), [""] * len(kinds), rows.astype(np.float32))


def measure_vectors(path: Path, k: int | str) -> dict[str, Any]:
    """Group the vectors of a file."""
    vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    before, peak, stop_event = get_memory_mib(), [0.0], threading.Event()

    def watch() -> None:
        while not stop_event.wait(0.02):
            peak[0] = max(peak[0], get_memory_mib())

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
        "added_memory_mb": round(peak[0] - before),
        "vectors_mb": round(vectors.nbytes / 1e6),
    }


def make_corpus(count: int) -> tuple[list[ClusterResult], dict[str, list[int]], list[str]]:
    """Make two groupings, two columns and dates."""
    rng, words = np.random.default_rng(0), sorted(load_stopwords())
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(count)]
    centres = rng.normal(size=(PAGE_GROUPS, PAGE_WIDTH))
    results = []
    for question in ("What is it about?", "How does the writer feel?"):
        labels = np.sort(rng.integers(0, PAGE_GROUPS, count)) if not results else rng.integers(0, PAGE_GROUPS, count)
        vectors = (centres[labels] + rng.normal(scale=0.8, size=(count, PAGE_WIDTH))).astype(np.float32)
        names = [draw.choices(words, k=3) for _ in range(PAGE_GROUPS)]
        examples = [texts[:5]] * PAGE_GROUPS
        answers = [names[label][0] for label in labels]
        results.append(ClusterResult(question, texts, labels, names, examples, answers, vectors, [[]] * PAGE_GROUPS))
    columns = {name: rng.integers(1, 6, count).tolist() for name in ("stars", "region")}
    days = (np.datetime64("2024-01-01") + rng.integers(0, 365, count)).astype(str).tolist()
    return results, columns, days


def measure_page(count: int, folder: Path) -> dict[str, Any]:
    """Write, open and use the page of one corpus."""
    results, columns, days = make_corpus(count)
    path = folder / "page.html"
    start_time = time.perf_counter()
    save_report(results, path, cross_tables=crosstab(results, columns), timelines=make_timelines(results, days))
    result: dict[str, Any] = {"texts": count, "seconds_to_write": round(time.perf_counter() - start_time, 1)}
    result["megabytes"] = round(path.stat().st_size / 1e6, 1)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        return result | use_page(page, path)


def use_page(page: Page, path: Path) -> dict[str, Any]:
    """Open a page, move the mouse over its map and use its controls, and time each."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(WATCH)
    start_time = time.perf_counter()
    page.goto(path.resolve().as_uri(), timeout=0)
    result: dict[str, Any] = {"milliseconds_to_open": round(1000 * (time.perf_counter() - start_time))}
    page.evaluate(SETTLED)
    result["rows_in_page"] = page.evaluate("JSON.parse(document.getElementById('data').textContent).texts.length")
    result["longest_task_opening"] = round(page.evaluate("Math.max(0, ...window.tasks)"))
    page.evaluate("window.tasks = [0]")
    box = page.evaluate("(b => [b.x, b.y, b.width, b.height])(document.querySelector('.plane svg').getBoundingClientRect())")
    start_time = time.perf_counter()
    for step in range(20):
        page.mouse.move(box[0] + box[2] * (0.2 + 0.03 * step), box[1] + box[3] / 2)
    milliseconds = {"move the mouse over the map": round(50 * (time.perf_counter() - start_time))}
    for name, script in USES.items():
        milliseconds[name] = round(
            page.evaluate(
                f"(async () => {{ const t = performance.now(); {script}; await {SETTLED}; return performance.now() - t; }})()"
            )
        )
    result["milliseconds_to_use"] = milliseconds
    result["longest_task_in_use"] = round(page.evaluate("Math.max(...window.tasks)"))
    if errors:
        raise RuntimeError(errors[0])
    return result


def measure_all_vectors(folder: Path, sizes: list[int]) -> dict[str, Any]:
    """Group the vectors of every size."""
    cases = []
    for rows in sizes:
        path = folder / f"{rows}.npy"
        write_vectors(path, rows)
        partition(np.load(path, mmap_mode="r", allow_pickle=False)[:1000], 2)  # loads what is loaded once
        for k in (GROUPS, "auto"):
            cases.append(measure_vectors(path, k))
            print(cases[-1], flush=True)
        path.unlink()
    description = f"synthetic vectors of {WIDTH} dimensions around {GROUPS} centres, mapped from a file; memory above the start"
    return {"description": description, "cases": cases}


def measure_all_pages(folder: Path, sizes: list[int]) -> dict[str, Any]:
    """Write, open and use the page of every size."""
    cells = []
    for count in sizes:
        cells.append(measure_page(count, folder))
        print(cells[-1], flush=True)
    description = f"{WORDS} words per text, 2 questions of {PAGE_GROUPS} groups, 2 columns, dates; headless Chromium, no GPU"
    return {"description": description, "cells": cells}


PARTS = {
    "vectors": (measure_all_vectors, ROW_COUNTS, ROOT / "evaluation" / "results" / "million.json"),
    "page": (measure_all_pages, TEXT_COUNTS, RESULTS / "page.json"),
    "index": (measure_all_indexes, INDEX_SIZES, RESULTS / "index_speed.json"),
}
"""Function, default sizes and results file of each part."""


def main() -> None:
    """Measure one part and write."""
    parser = make_parser(__doc__, None)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of rows or texts")
    options = parser.parse_args()
    measure_part, sizes, output = PARTS[options.part]
    with tempfile.TemporaryDirectory() as folder:
        results = measure_part(Path(folder), options.sizes or list(sizes))
    write_results(options.output or output, {**describe_run(options, ("torch", "transformers", "numpy", "lancedb")), **results})


if __name__ == "__main__":
    main()
