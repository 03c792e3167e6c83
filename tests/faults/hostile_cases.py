"""The hostile requests, and the statuses that each may get."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.faults.running_server import KEY, TIMEOUT_SECONDS, Server
from tests.faults.stage import INSTRUCTION

MAX_BODY_BYTES = 7_950_000
"""Just below the server's limit."""


def _fill(start: str, item: str, end: str, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    count = (max_bytes - len(start) - len(end)) // (len(item) + 1)
    return (start + ",".join([item] * count) + end).encode()


def _post(path: str, body: bytes) -> Callable[[Server], int]:
    return lambda server: server.send("POST", path, body)[0]


def _make_head(path: str, length: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _send_unfinished_bodies(server: Server) -> int:
    connections = []
    for _ in range(60):
        connection = socket.create_connection(server.address, TIMEOUT_SECONDS)
        connections.append(connection)
        connection.settimeout(1)
        with suppress(OSError):
            connection.sendall(_make_head("/v1/embeddings", MAX_BODY_BYTES) + b" " * (MAX_BODY_BYTES - 1))
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

    def send(server: Server) -> int:
        connections = []
        for _ in range(40):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(server.address)
            connection.sendall(_make_head(path, len(body)) + body)
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
