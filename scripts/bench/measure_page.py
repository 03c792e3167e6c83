#!/usr/bin/env python3
"""How long the page of a large corpus takes: to write, to open in headless Chromium, and to answer a hand.

python scripts/bench/measure_page.py --machine "2-core AMD EPYC, avx512_bf16" -o scripts/results/page.json

Texts are made up: 20 words each, two questions of 12 groups, two columns, dates of a year. "longest_task" is the longest time for
which the page was frozen (the browser's longtask entries, from 50 ms on; 0 means none) while it loaded, and while it was used.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from inbedder.grouping.clustering import ClusterResult
from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.compare.timelines import make_timelines
from inbedder.grouping.report.page import save_report
from inbedder.io.files import atomic_write
from inbedder.prompting.stopwords import load_stopwords

SIZES, GROUPS, WIDTH, WORDS = (1000, 5000, 50_000, 200_000), 12, 64, 20
WATCH = (
    "window.tasks = []; new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(e => e.duration)))"
    ".observe({type: 'longtask', buffered: true});"
)
ARGUMENTS = ["--disable-gpu", "--disable-quic"]
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


def make_corpus(count: int) -> tuple[list[ClusterResult], dict[str, list[int]], list[str]]:
    """Two groupings, two columns and dates."""
    rng, words = np.random.default_rng(0), sorted(load_stopwords())
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=WORDS)) for _ in range(count)]
    centres = rng.normal(size=(GROUPS, WIDTH))
    results = []
    for question in ("What is it about?", "How does the writer feel?"):
        labels = np.sort(rng.integers(0, GROUPS, count)) if not results else rng.integers(0, GROUPS, count)
        vectors = (centres[labels] + rng.normal(scale=0.8, size=(count, WIDTH))).astype(np.float32)
        names = [draw.choices(words, k=3) for _ in range(GROUPS)]
        examples = [texts[:5]] * GROUPS
        answers = [names[label][0] for label in labels]
        results.append(ClusterResult(question, texts, labels, names, examples, answers, vectors, [[]] * GROUPS))
    columns = {name: rng.integers(1, 6, count).tolist() for name in ("stars", "region")}
    days = (np.datetime64("2024-01-01") + rng.integers(0, 365, count)).astype(str).tolist()
    return results, columns, days


def measure(count: int, folder: Path) -> dict[str, Any]:
    """Write, open and use the page of one corpus."""
    results, columns, days = make_corpus(count)
    path = folder / "page.html"
    start_time = time.perf_counter()
    save_report(results, path, cross_tables=crosstab(results, columns), timelines=make_timelines(results, days))
    cell: dict[str, Any] = {"texts": count, "seconds_to_write": round(time.perf_counter() - start_time, 1)}
    cell["megabytes"] = round(path.stat().st_size / 1e6, 1)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS) as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        return cell | use_page(page, path)


def use_page(page: Page, path: Path) -> dict[str, Any]:
    """Open a page, move the mouse over its map and use its controls, and time each."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(WATCH)
    start_time = time.perf_counter()
    page.goto(path.resolve().as_uri(), timeout=0)
    cell: dict[str, Any] = {"milliseconds_to_open": round(1000 * (time.perf_counter() - start_time))}
    page.evaluate(SETTLED)
    cell["rows_in_page"] = page.evaluate("JSON.parse(document.getElementById('data').textContent).texts.length")
    cell["longest_task_opening"] = round(page.evaluate("Math.max(0, ...window.tasks)"))
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
    cell["milliseconds_to_use"] = milliseconds
    cell["longest_task_in_use"] = round(page.evaluate("Math.max(...window.tasks)"))
    if errors:
        raise RuntimeError(errors[0])
    return cell


def main() -> None:
    """Measure pages of several sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", required=True, help="What it ran on, in words.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    cells = []
    for count in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            cells.append(measure(count, Path(folder)))
        print(cells[-1])
    results = {
        "command": f"python scripts/bench/measure_page.py -o {arguments.output}",
        "description": f"{WORDS} words per text, 2 questions of {GROUPS} groups, 2 columns, dates; headless Chromium, no GPU",
        "machine": arguments.machine,
        "cells": cells,
    }
    with atomic_write(arguments.output) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
