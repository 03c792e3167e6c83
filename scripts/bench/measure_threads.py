#!/usr/bin/env python3
"""Compare the default number of threads with one and two threads, on an idle machine and with one core busy.

    python scripts/bench/measure_threads.py --rounds 5        (about 40 minutes on 2 cores; needs inbedder[mini,serve,ray])

Each round runs every setting once in turn: the demo as a whole process, 1,024 requests of 32 clients to ``inbedder serve``, and
``inbedder embed`` of 4,000 texts in one process and by two Ray workers. Wall seconds and the CPU seconds of the process and its
children; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from benchmark_inputs import RESULTS, get_capability, get_processor, texts

COMMAND = [sys.executable, "-m", "inbedder"]
SETTINGS = ("default", "1", "2")
PORT = 18766
BUSY_LOOP = "while True: pass"


def make_environment(setting: str) -> dict[str, str]:
    """The environment of a setting of ``OMP_NUM_THREADS``."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return environment if setting == "default" else environment | {"OMP_NUM_THREADS": setting}


def time_process(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*COMMAND, *arguments], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu


def time_demo(environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """The demo's command."""
    return time_process(["demo", "-o", str(folder / "report.html")], environment)


def time_embed(environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """4,000 texts in one process."""
    return time_process(make_embed_command(folder, ".parquet"), environment)


def time_workers(environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """The same by two workers of Ray Data; their CPU seconds are not those of a child, so only the wall counts."""
    return time_process([*make_embed_command(folder, ""), "--engine", "ray", "--workers", "2"], environment)[0], 0.0


def make_embed_command(folder: Path, suffix: str) -> list[str]:
    """The command, with a new output."""
    source, output = folder / "texts.txt", folder / f"{time.monotonic_ns()}{suffix}"
    source.write_text("\n".join(texts(4000, 8, 30)) + "\n", encoding="utf-8")
    return ["embed", str(source), "--instruction", "What is it about?", "-o", str(output)]


def time_server(environment: dict[str, str], _folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of 1,024 requests after 64 that warm up."""
    server = subprocess.Popen([*COMMAND, "serve", "--port", str(PORT)], env=environment, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                send("warm up")
                break
            except OSError:
                time.sleep(0.3)
        rows = texts(1088, 8, 30)
        with ThreadPoolExecutor(32) as clients:
            list(clients.map(send, rows[:64]))
            process = psutil.Process(server.pid)
            before, start = sum(process.cpu_times()[:2]), time.perf_counter()
            list(clients.map(send, rows[64:]))
            return time.perf_counter() - start, sum(process.cpu_times()[:2]) - before
    finally:
        server.terminate()
        server.wait()


def send(text: str) -> None:
    """One request."""
    body = json.dumps({"input": text, "instruction": "What is it about?"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


@contextmanager
def keep_cores_busy(count: int) -> Iterator[None]:
    """Keep cores busy with other programs."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()


JOBS: dict[str, Callable[[dict[str, str], Path], tuple[float, float]]] = {
    "demo": time_demo,
    "server": time_server,
    "embed": time_embed,
    "embed with two Ray workers": time_workers,
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"threads-{get_capability()}.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only jobs whose name contains this")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for job in [name for name in JOBS if options.only in name]:
        for busy in (0, 1):
            seconds: dict[str, list[tuple[float, float]]] = {setting: [] for setting in SETTINGS}
            with tempfile.TemporaryDirectory() as folder, keep_cores_busy(busy):
                for _ in range(options.rounds):
                    for setting in SETTINGS:
                        wall, cpu = JOBS[job](make_environment(setting), Path(folder))
                        seconds[setting].append((round(wall, 2), round(cpu, 2)))
            name = f"{job}, {'beside a busy core' if busy else 'alone'}"
            results[name] = {
                setting: {
                    "wall_s": round(statistics.median(wall for wall, _ in pairs), 2),
                    "cpu_s": round(statistics.median(cpu for _, cpu in pairs), 2),
                    "rounds": pairs,
                }
                for setting, pairs in seconds.items()
            }
            print(name, {setting: (one["wall_s"], one["cpu_s"]) for setting, one in results[name].items()}, flush=True)
    content = {
        "machine": f"{get_processor()}, {os.cpu_count()} cores",
        "command": shlex.join(["python", "scripts/bench/measure_threads.py", *sys.argv[1:]]),
        "seconds": results,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
