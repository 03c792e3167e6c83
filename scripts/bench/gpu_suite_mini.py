"""Compare the bundled model on a GPU with sentence-transformers there and with the machine's CPU."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmark_inputs import QUESTIONS
from gpu_suite_base import CARRIED, copy_mini, find_base, sample_texts
from gpu_suite_timing import Record, compare_vectors, measure_memory, time_rounds

from inbedder import InBedder
from inbedder.backbones.weights import has_fast_bf16


def measure_stage(device: str, tiny: bool, record: Record) -> None:
    """Measure the bundled model on the GPU, sentence-transformers there, and both on the machine's CPU."""
    from sentence_transformers import SentenceTransformer

    rows = sample_texts(2 if tiny else 2048)
    with tempfile.TemporaryDirectory() as temporary:
        base, weights = find_base(CARRIED, Path(temporary, "base"))
        mini = str(copy_mini(base, Path(temporary, "mini")))
        record("base", weights)
        record("texts", len(rows))
        vectors: dict[str, Any] = {}
        for place in dict.fromkeys([device, "cpu"]):
            batch = rows if place == "cuda" else rows[:128]
            for dtype in _list_dtypes(place, tiny):
                plain = SentenceTransformer(str(base), device=place, model_kwargs={"dtype": getattr(torch, dtype)})
                model = InBedder(mini, device=place, dtype=dtype)
                ways: dict[str, Callable[[list[str]], Any]] = {
                    "sentence-transformers, no question": lambda texts, plain=plain: plain.encode(texts, batch_size=256),
                    "mini": lambda texts, model=model: model.encode(texts, QUESTIONS[0], batch_size=256),
                    "mini, 10 questions together": lambda texts, model=model: model.encode_many(texts, QUESTIONS)[0],
                }
                record(f"{place}, {dtype}", _time_ways(ways, batch, place, tiny, vectors.setdefault(f"{place}, {dtype}", {})))
        record("smallest cosine to the CPU's float32", _compare_places(vectors, device))


def _list_dtypes(place: str, tiny: bool) -> list[str]:
    return ["float32", "bfloat16"] if has_fast_bf16(torch.device(place)) and not tiny else ["float32"]


def _time_ways(
    ways: dict[str, Callable[[list[str]], Any]], rows: list[str], place: str, tiny: bool, vectors: dict[str, Any]
) -> dict[str, Any]:
    """Time each way; ``vectors`` receives its results."""
    results: dict[str, Any] = {}
    for name, encode in ways.items():
        encode(rows)  # warms up: the first products of each size are slow on a GPU
        with measure_memory(place) as memory:
            seconds, vectors[name] = time_rounds(lambda: encode(rows), 0 if tiny else 1.5)  # noqa: B023
        median = statistics.median(seconds)
        results[name] = {
            "seconds": [round(each, 3) for each in seconds],
            "texts per second": round(len(rows) / median, 1),
            **memory,
        }
    baseline = results["sentence-transformers, no question"]["texts per second"]
    for result in results.values():
        result["times as fast as sentence-transformers"] = round(result["texts per second"] / baseline, 2)
    return results


def _compare_places(vectors: dict[str, dict[str, Any]], device: str) -> dict[str, dict[str, float]]:
    """Compare each way's vectors with those of the CPU in float32: the smallest cosine."""
    exact = vectors["cpu, float32"]
    return {
        place: {name: round(compare_vectors(array, exact[name]), 6) for name, array in ways.items()}
        for place, ways in vectors.items()
        if place.startswith(device)
    }
