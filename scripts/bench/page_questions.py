#!/usr/bin/env python3
"""Ask questions in a page with a model (``cluster --ask-in-page``), and compare its answers and groups with inbedder's own.

    python -m scripts.bench.page_questions DATA          (about 3 minutes; needs Chromium)

The first question of a page waits until its texts are read. Groups are compared with the labels: those of the page, and those of
k-means on the vectors of ``encode``, as many as there are labels.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from inbedder import InBedder, cluster
from inbedder.errors import format_count
from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import describe_run, make_parser, open_browser, write_results

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS = 1000
WAIT_MS = 300_000


class Criterion(NamedTuple):
    """A question about a set, and the column with its labels."""

    question: str
    column: str


SETS = {
    "airline_tweets/all": (
        Criterion("Which airline is it about?", "airline"),
        Criterion("How does the writer feel?", "sentiment"),
    ),
    "clinc150/test": (Criterion("What is the topic?", "domain"), Criterion("What does the user want?", "domain")),
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a random sample of a set."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return random.Random(0).sample(rows, ROWS)


def ask(page: Page, question: str, groups: int) -> tuple[float, list[tuple[int, str]]]:
    """Ask a question in the page; return the seconds, and group and answer of each text."""
    start = time.perf_counter()
    page.fill("#ask input[name=question]", question)
    page.select_option("#ask select", str(groups))
    page.click("#ask form button")
    page.locator(".ask-status", has_text=f"answers to “{question}”").wait_for(timeout=WAIT_MS)
    seconds = time.perf_counter() - start
    with page.expect_download() as download:
        page.click("#ask .actions button")
    with Path(download.value.path()).open(encoding="utf-8-sig", newline="") as file:
        rows = {int(row[0]): (int(row[2]), row[4]) for row in list(csv.reader(file))[1:]}
    return seconds, [rows[number] for number in sorted(rows)]


def measure(page: Page, criterion: Criterion, rows: list[dict[str, Any]], model: InBedder) -> dict[str, Any]:
    """Compare the page's answers and groups with the model's."""
    texts, labels = [row["text"] for row in rows], [str(row[criterion.column]) for row in rows]
    count = len(set(labels))
    seconds, page_rows = ask(page, criterion.question, count)
    vectors, answers = model.encode(texts, criterion.question), model.answer(texts, criterion.question)
    groups = KMeans(count, n_init=5, random_state=0).fit_predict(vectors)
    return {
        "question": criterion.question,
        "labels": criterion.column,
        "seconds": round(seconds, 1),
        "same_answers": round(
            100 * float(np.mean([answer == expected for (_, answer), expected in zip(page_rows, answers, strict=True)])), 1
        ),
        "v_measure": round(100 * v_measure_score(labels, [group for group, _ in page_rows]), 1),
        "own_v_measure": round(100 * v_measure_score(labels, groups), 1),
    }


def main() -> None:
    """Write pages, ask, and write the results."""
    options = make_parser(__doc__, RESULTS / "page_questions.json", reads_data=True).parse_args()
    model, results = InBedder(dtype="float32"), []
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        for name, criteria in SETS.items():
            rows, path = read_rows(options.data / f"{name}.jsonl.gz"), Path(folder) / "page.html"
            cluster([row["text"] for row in rows], "What is it about?", model=model, k=5).save_html(path, page_model=model)
            page = browser.new_page()
            page.goto(path.as_uri())
            page.click("#tab-ask")
            tokens = page.evaluate("JSON.parse(document.getElementById('ask-data').textContent).texts.flat().length")
            record = {"set": name, "texts": len(rows), "tokens": tokens, "page_mb": round(path.stat().st_size / 1e6, 1)}
            results.append(record | {"questions": [measure(page, criterion, rows, model) for criterion in criteria]})
            page.close()
            print(format_count(len(rows), "text"), results[-1])
        workers = {"browser": f"Chromium {browser.version}"}
    write_results(options.output, {**describe_run(options), **workers, "model": "mini", "results": results})


if __name__ == "__main__":
    main()
