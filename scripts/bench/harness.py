"""Run benchmarks: the command line, the machine, ways timed in turn, and the results file."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from inbedder.io.files import atomic_write
from scripts.bench.benchmark_inputs import get_capability, get_processor

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
REVIEWS = ROOT / "inbedder" / "demo_texts" / "reviews.csv"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGUMENTS = ["--disable-gpu", "--disable-quic"]
REVIEW_QUESTIONS = ("What is being reviewed?", "Is the review positive or negative?")


Encode = Callable[[list[str]], Any]
"""Computes the vectors of texts."""


class Engine(NamedTuple):
    """A way to the vectors of a model."""

    package: str
    """The distribution that it needs."""
    load: Callable[[], Encode]
    """Loads the model."""
    reference: str | None = None
    """The engine that its vectors are compared with."""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the system's Chromium without a window; yields the browser."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)))
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS) as browser,
    ):
        yield browser


def make_parser(docstring: str | None, output: Path | None, *, reads_data: bool = False) -> argparse.ArgumentParser:
    """Make the parser of a benchmark.

    Args:
        docstring: The module's docstring.
        output: Default of ``--output``; None if each part of the benchmark has a file of its own.
        reads_data: Whether the command takes a folder of evaluation sets.

    Returns:
        A parser with ``--output``, ``--machine`` and, if it reads data, ``data``.
    """
    parser = argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)
    if reads_data:
        parser.add_argument("data", type=Path, metavar="DATA", help="folder of the evaluation sets")
    parser.add_argument("-o", "--output", type=Path, default=output)
    parser.add_argument("--machine", default=describe_machine(), help="default: processor, number of cores and CPU feature")
    return parser


def describe_machine() -> str:
    """Name the processor, its cores, the CPU feature that determines speed, and variables that restrict it."""
    variables = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
    limits = [f"{name}={os.environ[name]}" for name in variables if name in os.environ]
    return ", ".join([get_processor(), f"{os.cpu_count()} cores", get_capability(), *limits])


def describe_run(options: argparse.Namespace, packages: Iterable[str] = ("torch", "transformers", "numpy")) -> dict[str, Any]:
    """Describe how results are made.

    Args:
        options: The parsed command line.
        packages: Packages whose versions matter.

    Returns:
        Command, machine, number of threads, and versions of the installed packages.
    """
    specification = sys.modules["__main__"].__spec__
    module = specification.name.removesuffix(".__main__") if specification else Path(sys.argv[0]).name
    return {
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "machine": options.machine,
        "threads": torch.get_num_threads(),
        "versions": {package: version(package) for package in packages if is_installed(package)},
    }


def is_installed(package: str) -> bool:
    """Return whether a distribution is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def time_in_turn(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Time several ways round by round, each way once per round, after one round that warms up.

    Args:
        ways: Functions by name.
        rounds: Number of timed rounds.

    Returns:
        Seconds of each round, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if number:
                seconds[name].append(round(time.perf_counter() - start, 4))
    return seconds


def compute_ratio(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """Compute how many times as fast the second way is: the median of the rounds' ratios, the smallest and the largest."""
    ratios = [first / second for first, second in zip(slow, fast, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 2),
        "smallest": round(min(ratios), 2),
        "largest": round(max(ratios), 2),
    }


def write_results(path: Path, content: Mapping[str, Any]) -> None:
    """Write a results file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
