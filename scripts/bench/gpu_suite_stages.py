"""The stages of the GPU suite. Each takes a device, whether to be tiny, and a function that records a result by its name."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmark_inputs import QUESTIONS, get_processor
from gpu_suite_carry import CARRIED, ROOT, copy_mini, find_base, sample_texts
from gpu_suite_finetune import measure_finetuning
from gpu_suite_shapes import GIB, Record, measure_memory, measure_shapes, time_rounds

from inbedder import InBedder
from inbedder.backbones.weights import has_fast_bf16

PACKAGES = "torch transformers sentence-transformers peft accelerate bitsandbytes datasets tokenizers numpy".split()


def measure_environment(device: str, tiny: bool, record: Record) -> None:
    """Record the machine, and how fast it multiplies matrices and copies memory."""
    record("card", torch.cuda.get_device_name(0) if device == "cuda" else "cpu")
    record("processor", get_processor())
    record("cores", os.cpu_count())
    record("versions", {"python": platform.python_version(), "cuda": torch.version.cuda, **_read_versions()})
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        record("memory (GiB)", round(properties.total_memory / GIB, 1))
        record("compute capability", f"{properties.major}.{properties.minor}")
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        record("driver", subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip())
    record("bfloat16 in hardware", has_fast_bf16(torch.device(device)))
    size = 64 if tiny else 8192
    speeds = {str(dtype).removeprefix("torch."): _time_product(device, dtype, size) for dtype in dtypes}
    record(f"TFLOP/s of a product of {size} x {size} matrices", speeds)


def _read_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _time_product(device: str, dtype: torch.dtype, size: int) -> float:
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    count = 10

    def multiply() -> None:
        for _ in range(count):
            product = left @ right
        product[0, 0].item()  # waits for the GPU

    multiply()
    seconds, _ = time_rounds(multiply, 1.0)
    return round(2 * size**3 * count / statistics.median(seconds) / 1e12, 1)


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


def run_tests(device: str, tiny: bool, record: Record) -> None:
    """Run the tests that need a GPU."""
    os.environ["INBEDDER_TEST_DEVICE"] = device
    counter = TestCounter(record)
    arguments = ["-p", "no:cacheprovider", "-m", "cuda", "--rootdir", str(ROOT), str(ROOT / "tests" / "test_cuda.py")]
    code = pytest.main([*arguments, *(["-k", "families and opt"] if tiny else [])], plugins=[counter])
    if code != pytest.ExitCode.OK or counter.counts["skipped"]:
        raise SystemExit(f"Tests failed or were skipped ({code!r}, {counter.counts}).")


def measure_mini(device: str, tiny: bool, record: Record) -> None:
    """Measure the bundled model on the GPU beside sentence-transformers there, and beside the CPU of the same machine."""
    from sentence_transformers import SentenceTransformer

    rows = sample_texts(2 if tiny else 8192)
    with tempfile.TemporaryDirectory() as temporary:
        base, weights = find_base(CARRIED, Path(temporary, "base"))
        mini = str(copy_mini(base, Path(temporary, "mini")))
        record("base", weights)
        record("texts", len(rows))
        vectors: dict[str, Any] = {}
        for place in dict.fromkeys([device, "cpu"]):
            batch = rows if place == "cuda" else rows[:256]
            for dtype in ("float32", "bfloat16"):
                plain = SentenceTransformer(str(base), device=place, model_kwargs={"dtype": getattr(torch, dtype)})
                model = InBedder(mini, device=place, dtype=dtype, add_generic=False)
                whole = InBedder(mini, device=place, dtype=dtype)
                ways: dict[str, Callable[[list[str]], Any]] = {
                    "sentence-transformers, no question": lambda texts, plain=plain: plain.encode(texts, batch_size=256),
                    "mini": lambda texts, model=model: model.encode(texts, QUESTIONS[0], batch_size=256),
                    "mini, question about the whole text": lambda texts, whole=whole: whole.encode(texts, "@topic", batch_size=256),
                    "mini, 10 questions together": lambda texts, model=model: model.encode_many(texts, QUESTIONS)[0],
                }
                record(f"{place}, {dtype}", _time_ways(ways, batch, place, tiny, vectors.setdefault(f"{place}, {dtype}", {})))
        record("smallest cosine to the CPU's float32", _compare_vectors(vectors, device))


def _time_ways(
    ways: dict[str, Callable[[list[str]], Any]], rows: list[str], place: str, tiny: bool, vectors: dict[str, Any]
) -> dict[str, Any]:
    """Time each way; ``vectors`` receives its results."""
    results: dict[str, Any] = {}
    for name, encode in ways.items():
        encode(rows[: 1 if tiny else 64])  # warms up
        with measure_memory(place) as memory:
            seconds, vectors[name] = time_rounds(lambda: encode(rows), 0 if tiny else 2.0)  # noqa: B023
        median = statistics.median(seconds)
        results[name] = {"seconds": [round(each, 3) for each in seconds], "texts per second": round(len(rows) / median, 1), **memory}
    baseline = results["sentence-transformers, no question"]["texts per second"]
    for result in results.values():
        result["times as fast as sentence-transformers"] = round(result["texts per second"] / baseline, 2)
    return results


def _compare_vectors(vectors: dict[str, dict[str, Any]], device: str) -> dict[str, dict[str, float]]:
    """Compare each way's vectors with those of the CPU in float32: the smallest cosine."""
    cosines: dict[str, dict[str, float]] = {}
    for place in (f"{device}, float32", f"{device}, bfloat16"):
        cosines[place] = {}
        for name, expected in vectors["cpu, float32"].items():
            count = min(len(expected), len(vectors[place][name]))
            pair = (torch.from_numpy(np.asarray(array[:count], dtype=np.float32)) for array in (vectors[place][name], expected))
            cosines[place][name] = round(torch.cosine_similarity(*pair).min().item(), 6)
    return cosines


STAGES: dict[str, Callable[[str, bool, Record], None]] = {
    "environment": measure_environment,
    "tests": run_tests,
    "shapes": measure_shapes,
    "finetune": measure_finetuning,
    "mini": measure_mini,
}
