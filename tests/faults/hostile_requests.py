"""Requests that try to stop a server: oversized headers, bodies and lists, odd characters, and bodies that never end.

    python -m tests.faults.hostile_requests -o scripts/results/hostile_requests.json

While each is sent, ``GET /health`` is asked again and again; its slowest answer and the server's peak memory are what the results
hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.campaign import Fault, Kind, Lost, UndetectedError
from tests.faults.hostile_cases import CASES
from tests.faults.running_server import Server, run_server
from tests.faults.stage import INSTRUCTION, Stage, load

MAX_HEALTH_SECONDS = 5.0
"""Slowest answer that survives in a campaign, beside other work on the same cores."""


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
