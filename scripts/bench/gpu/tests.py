"""Run the tests that need a GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.gpu.timing import Record

ROOT = Path(__file__).resolve().parents[3]


class TestCounter:
    """A plugin of pytest that counts outcomes."""

    __test__ = False

    def __init__(self, record: Record) -> None:
        """Begin with no outcome."""
        self.record, self.counts = record, {"passed": 0, "failed": 0, "skipped": 0}
        self.failures: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test once, and note why it failed."""
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
            self.record("counts", self.counts)
        if report.outcome == "failed":
            lines = [line for line in report.longreprtext.splitlines() if line.startswith("E")]
            self.failures[report.nodeid] = " ".join((lines or report.longreprtext.splitlines()[-1:])[0].split())[:300]
            self.record("failures", self.failures)


def measure_stage(device: str, tiny: bool, record: Record) -> None:
    """Run the tests that need a GPU."""
    os.environ["INBEDDER_TEST_DEVICE"] = device
    counter = TestCounter(record)
    arguments = ["-p", "no:cacheprovider", "-m", "cuda", "--rootdir", str(ROOT), str(ROOT / "tests" / "test_cuda.py")]
    code = pytest.main([*arguments, *(["-k", "families and opt"] if tiny else [])], plugins=[counter])
    if code != pytest.ExitCode.OK or counter.counts["skipped"]:
        raise SystemExit(f"Tests failed or were skipped ({code!r}, {counter.counts}).")
