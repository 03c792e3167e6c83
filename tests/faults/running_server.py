"""A running ``inbedder serve``, whose /health and memory are watched."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.campaign import Lost
from tests.faults.stage import ROOT

KEY = "the-key-of-the-campaign"
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
