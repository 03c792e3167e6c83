"""Describe the machine with the GPU, and time its matrix products."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from importlib.metadata import PackageNotFoundError, version

import torch

from inbedder.backbones.weights import has_fast_bf16
from scripts.bench.benchmark_inputs import get_processor
from scripts.bench.gpu.suite import NO_GPU
from scripts.bench.gpu.timing import GIB, Record, time_rounds

PACKAGES = "torch transformers sentence-transformers peft accelerate bitsandbytes datasets tokenizers numpy".split()


def measure_stage(device: str, tiny: bool, record: Record) -> None:
    """Record the machine, and how fast it multiplies matrices and copies memory."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(NO_GPU)
    record("card", torch.cuda.get_device_name(0) if device == "cuda" else "cpu")
    record("processor", get_processor())
    record("cores", os.cpu_count())
    record("versions", {"python": platform.python_version(), "cuda": torch.version.cuda, **_read_versions()})
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        record("memory (GiB)", round(properties.total_memory / GIB, 1))
        record("compute capability", f"{properties.major}.{properties.minor}")
    record("bfloat16 in hardware", has_fast_bf16(torch.device(device)))
    size = 64 if tiny else 8192
    speeds = {str(dtype).removeprefix("torch."): _time_product(device, dtype, size) for dtype in dtypes}
    record(f"TFLOP/s of a product of {size} x {size} matrices", speeds)
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        record("driver", subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip())


def _read_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _time_product(device: str, dtype: torch.dtype, size: int) -> float:
    matrix, factor = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    count = 10

    def compute_products() -> None:
        for _ in range(count):
            product = matrix @ factor
        product[0, 0].item()  # waits for the GPU

    compute_products()
    seconds, _ = time_rounds(compute_products, 1.0)
    return round(2 * size**3 * count / statistics.median(seconds) / 1e12, 1)
