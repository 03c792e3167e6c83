"""Requests that try to stop a server: oversized headers, bodies and lists, odd characters, and bodies that never end.

    python -m tests.faults.hostile_requests -o scripts/results/hostile_requests.json

While each is sent, ``GET /health`` is asked again and again; its slowest answer and the server's peak memory are what the results
hold.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.campaign import Fault, Kind, Lost, UndetectedError
from tests.faults.stage import INSTRUCTION, ROOT, Stage, load

KEY = "the-key-of-the-campaign"
MAX_BODY_BYTES = 7_950_000
"""Just below the server's limit."""
MAX_HEALTH_SECONDS = 5.0
"""Slowest answer that survives in a campaign, beside other work on the same cores."""
TIMEOUT_SECONDS = 120.0


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[str]
    """The process."""
    address: tuple[str, int]
    """Host and port."""
    health_seconds: list[float] = field(default_factory=list)
    """How long each answer of /health took."""

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Send a request with the key; return status and body."""
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT_SECONDS)
        try:
            fields = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body or None, fields)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def send_raw(self, start: bytes, block: bytes, num_blocks: int) -> int:
        """Send bytes without a key until the server refuses them; return the status, 0 when it only closed the connection."""
        with socket.create_connection(self.address, TIMEOUT_SECONDS) as connection:
            with suppress(OSError):  # refused before all was sent
                connection.sendall(start)
                for _ in range(num_blocks):
                    connection.sendall(block)
            with suppress(OSError):
                answer = connection.recv(4096)
                return int(answer.split()[1]) if answer.startswith(b"HTTP/") else 0
        return 0

    @property
    def memory_mib(self) -> float:
        """Peak resident memory since ``reset_peak``."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def reset_peak(self) -> None:
        """Forget the peak of the memory (Linux)."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="utf-8")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ask /health again and again, in a thread."""
        self.health_seconds = []
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                started = time.monotonic()
                with suppress(OSError, http.client.HTTPException):
                    self.send("GET", "/health")
                self.health_seconds.append(time.monotonic() - started)
                stop.wait(0.02)

        watcher = threading.Thread(target=ask)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()


@contextmanager
def run_server(model: str, **environment: str) -> Iterator[Server]:
    """Run ``inbedder serve`` with a key.

    Args:
        model: NAME or NAME=PATH.
        **environment: Further settings.

    Yields:
        The server, ready.
    """
    settings = {"INBEDDER_API_KEY": KEY, "INBEDDER_PORT": "0", "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-m", "inbedder", "serve", "--model", model]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings}, cwd=ROOT)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        address = next((line.split()[2] for line in lines if line.startswith("Serving at ")), None)
        if address is None:
            raise Lost(f"the server did not start; exit code {process.wait()}")
        threading.Thread(target=lambda: [None for _ in lines], daemon=True).start()
        host, port = address.removeprefix("http://").split(":")
        yield Server(process, (host, int(port)))
    finally:
        process.kill()
        process.wait()


def _fill(start: str, item: str, end: str, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    count = (max_bytes - len(start) - len(end)) // (len(item) + 1)
    return (start + ",".join([item] * count) + end).encode()


def _post(path: str, body: bytes) -> Callable[[Server], int]:
    return lambda server: server.send("POST", path, body)[0]


def _send_unfinished_bodies(server: Server) -> int:
    connections = []
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    for _ in range(60):
        connection = socket.create_connection(server.address, TIMEOUT_SECONDS)
        connections.append(connection)
        connection.settimeout(1)
        with suppress(OSError):
            connection.sendall(f"{head}Content-Length: {MAX_BODY_BYTES}\r\n\r\n".encode() + b" " * (MAX_BODY_BYTES - 1))
    codes = set()
    for connection in connections:
        connection.settimeout(TIMEOUT_SECONDS)
        with suppress(OSError), connection:
            answer = connection.recv(4096)
            codes.add(int(answer.split()[1]) if answer else 0)
    return max(codes, default=0)


def _send_forty(texts: list[str]) -> Callable[[Server], int]:
    """Send forty requests at once, and return their highest status."""
    body = json.dumps({"input": texts, "instruction": INSTRUCTION}).encode()

    def send(server: Server) -> int:
        with ThreadPoolExecutor(40) as pool:
            return max(pool.map(lambda _: server.send("POST", "/v1/embeddings", body)[0], range(40)))

    return send


def _send_without_reading(path: str, body: bytes, seconds: float) -> Callable[[Server], int]:
    """Send forty requests, read nothing for some seconds, and return the highest of the statuses that wait then."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"

    def send(server: Server) -> int:
        connections = []
        for _ in range(40):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(server.address)
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            connections.append(connection)
        time.sleep(seconds)
        codes = set()
        for connection in connections:
            connection.settimeout(0.2)
            with connection, suppress(OSError):
                codes.add(int(connection.recv(64).split()[1]))
        return max(codes, default=0)

    return send


MANY_TEXTS = json.dumps({"input": ["a"] * 2048, "instruction": INSTRUCTION}).encode()
CATEGORIES = [{"name": f"c{number} " + "x" * 4000, "description": "ab"[number % 2]} for number in range(800)]
LARGE_CLASSIFICATION = json.dumps({"input": ["a"] * 2048, "categories": CATEGORIES, "top_n": 1_000_000_000}).encode()
"""Its answer would have 6.5 GB."""
WIDE_CLASSIFICATION = json.dumps({"input": ["a"] * 2048, "categories": CATEGORIES[:5], "top_n": 5}).encode()
"""Its answer has 41 MB, most of which are names."""
SURROGATE = '"\\ud83d"'
GET = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CASES: dict[str, tuple[Callable[[Server], int], set[int]]] = {
    "a list of nulls to /v1/embeddings": (_post("/v1/embeddings", _fill('{"input": [', "null", "]}")), {413, 422}),
    "a list of numbers to /v1/embeddings": (_post("/v1/embeddings", _fill('{"input": [', "1", "]}")), {413, 422}),
    "a list of empty lists to /v1/embeddings": (_post("/v1/embeddings", _fill('{"input": [', "[]", "]}")), {413, 422}),
    "a list of empty texts to /v1/embeddings": (_post("/v1/embeddings", _fill('{"input": [', '""', "]}")), {413, 422}),
    "a list of nulls to /v1/rerank": (_post("/v1/rerank", _fill('{"query": "a", "documents": [', "null", "]}")), {413, 422}),
    "a list of objects to /v1/rerank": (_post("/v1/rerank", _fill('{"query": "a", "documents": [', "{}", "]}")), {413, 422}),
    "a list of nulls to /v1/clusters": (_post("/v1/clusters", _fill('{"texts": [', "null", "]}")), {413, 422}),
    "a list of instructions to /v1/clusters": (
        _post("/v1/clusters", _fill('{"texts": ["a", "b"], "instructions": [', '"a"', "]}")),
        {413, 422},
    ),
    "a list of nulls to /v1/answers": (_post("/v1/answers", _fill('{"input": [', "null", "]}")), {413, 422}),
    "unknown fields": (
        _post("/v1/embeddings", ("{" + ",".join(f'"f{n}":0' for n in range(600_000)) + "}").encode()),
        {400, 413, 422},
    ),
    "nested lists": (_post("/v1/embeddings", b'{"input": ' + b"[" * 7_000_000), {400, 422}),
    "a number of eight million digits": (_post("/v1/embeddings", b'{"dimensions": ' + b"1" * 7_900_000 + b"}"), {400, 422}),
    "a text of eight million characters": (_post("/v1/embeddings", b'{"input": "' + b"a" * 7_900_000 + b'"}'), {413, 422}),
    "a header of 160 MB": (lambda server: server.send_raw(GET + b"X-A: ", b"a" * 1_000_000, 160), {0, 400, 431}),
    "a million headers": (lambda server: server.send_raw(GET, b"X-A: a\r\n" * 10_000, 100), {0, 400, 431}),
    "a URL of 100 MB": (lambda server: server.send_raw(b"GET /", b"a" * 1_000_000, 100), {0, 400, 414, 431}),
    "a lone surrogate in /v1/rerank": (
        _post("/v1/rerank", f'{{"query": "a", "documents": [{SURROGATE}], "return_documents": true}}'.encode()),
        {200},
    ),
    "a lone surrogate in /v1/clusters": (
        _post("/v1/clusters", f'{{"texts": ["a b", "c d"], "instructions": [{SURROGATE}], "k": 2}}'.encode()),
        {200},
    ),
    "a lone surrogate in /v1/answers": (_post("/v1/answers", f'{{"input": [{SURROGATE}], "instruction": "a?"}}'.encode()), {200}),
    "a lone surrogate as a model": (_post("/v1/embeddings", f'{{"input": "a", "model": {SURROGATE}}}'.encode()), {404, 422}),
    "sixty bodies that never end": (_send_unfinished_bodies, {0, 408, 413, 429, 503}),
    "forty requests of sixty texts": (_send_forty([f"text number {number} of many" for number in range(60)]), {200, 429}),
    "forty requests of 7.9 MB": (_send_forty([f"{number} " + "word " * 780 for number in range(2000)]), {413, 422, 429}),
    "a classification whose answer is larger than memory": (_post("/v1/classify", LARGE_CLASSIFICATION), {422}),
    "forty clients that do not read vectors": (_send_without_reading("/v1/embeddings", MANY_TEXTS, 15), {0, 200, 429}),
    "forty clients that do not read classifications": (
        _send_without_reading("/v1/classify", WIDE_CLASSIFICATION, 15),
        {0, 200, 429},
    ),
    "a page of another site": (lambda server: server.send("GET", "/docs", headers={"Origin": "http://example.com"})[0], {403}),
}
"""What is sent, and the statuses that it may get; 0 is a connection that the server closed."""


class HostileRequests:
    """One server for all faults."""

    def __init__(self, stage: Stage) -> None:
        """Take the model.

        Args:
            stage: Where it is.
        """
        self.stage = stage

    def kinds(self) -> list[Kind]:
        """One kind: a fault is one case. A server that has survived some cases is used for the others."""
        return [Kind("hostile request to a server", len(CASES), self.attack, thinned=False)]

    def attack(self, fault: Fault) -> None:
        """Send a hostile request: it is refused or answered, others are answered meanwhile, and vectors are right after it."""
        name = list(CASES)[fault.number]
        fault.note(name)
        with run_server(f"tiny={self.stage.models['opt']}", INBEDDER_DTYPE="float32") as server:
            attack(server, name)
            body = json.dumps({"input": self.stage.few, "instruction": INSTRUCTION, "normalized": False}).encode()
            status, answer = server.send("POST", "/v1/embeddings", body)
            right = load(self.stage.models["opt"]).encode(self.stage.few, INSTRUCTION)
            vectors = np.array([item["embedding"] for item in json.loads(answer)["data"]]) if status == 200 else None
            if vectors is None or not np.allclose(vectors, right, atol=1e-4 * np.abs(right).max()):
                raise UndetectedError(f"a request after it got status {status} or other vectors")
            if max(server.health_seconds) > MAX_HEALTH_SECONDS:
                raise Lost(f"/health took {max(server.health_seconds):.1f} s meanwhile")


def attack(server: Server, name: str) -> int:
    """Send a hostile request while /health is asked.

    Args:
        server: The server.
        name: Of the case.

    Returns:
        The status that it got.

    Raises:
        Lost: When the server ended, or the status is not one of those allowed.
    """
    send, allowed = CASES[name]
    with server.watched():
        status = send(server)
    if server.process.poll() is not None:
        raise Lost("the server ended")
    if status not in allowed:
        raise Lost(f"{name} got status {status}")
    return status


def measure(model: str) -> dict[str, Any]:
    """Send every case to a server of its own.

    Args:
        model: NAME or NAME=PATH.

    Returns:
        Status, slowest /health and peak memory against idle memory, by case.
    """
    results: dict[str, Any] = {}
    for name in CASES:
        with run_server(model) as server:
            body = json.dumps({"input": ["a warm-up"] * 32, "instruction": INSTRUCTION}).encode()
            server.send("POST", "/v1/embeddings", body)
            server.reset_peak()
            idle = server.memory_mib
            status = attack(server, name)
            results[name] = {
                "status": status,
                "slowest_health_seconds": round(max(server.health_seconds), 3),
                "peak_memory_over_idle": round(server.memory_mib / idle, 3),
            }
            print(name, results[name], file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results = {
        "command": " ".join(["python -m tests.faults.hostile_requests", *sys.argv[1:]]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "model": options.model,
        "cases": measure(options.model),
    }
    text = json.dumps(results, indent=1)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
