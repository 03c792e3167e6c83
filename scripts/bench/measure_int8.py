#!/usr/bin/env python3
"""What 8-bit integers on a CPU would gain and lose: the blocks' matrices by oneDNN, weights and activations in int8.

    python scripts/bench/measure_int8.py                          (about 12 minutes on 2 cores; needs inbedder[mini] and small)
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python scripts/bench/measure_int8.py      (as on a CPU without AVX512)

Weights have a scale per row. Activations have one scale per batch ("tensor"), which oneDNN takes as it is, or one per token,
which costs passes of torch. Both are compared with float32 in the same run: the median of the rounds' ratios of time, the share
of 300 answers that stay, the cosines of the vectors, and the share of texts whose nearest text stays. It is not in the package.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_inputs import RESULTS, get_capability, get_processor
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder import InBedder
from inbedder.io.tables import read_rows

REVIEWS = Path(__file__).parents[2] / "inbedder" / "demo_texts" / "reviews.csv"
QUESTIONS = ["Do they like it?", "What is it about?", "How does the customer feel?"]
TEXTS = 100


class Int8Linear(nn.Module):
    """A linear layer whose weights and inputs are rounded to 8 bits."""

    def __init__(self, linear: Any, activations: str) -> None:
        """Round the weights of a layer, one scale per row."""
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.gelu, self.activations = getattr(linear, "gelu", False), activations
        weight = linear.weight.float()
        self.scales = (weight.abs().amax(1) / 127).clamp(min=1e-8)
        integers = (weight / self.scales[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(integers, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)

    def forward(self, states: Tensor) -> Tensor:
        """Apply the layer."""
        rows = states.reshape(-1, self.in_features)
        output = self._apply_per_token(rows) if self.activations == "token" else self._apply_per_tensor(rows)
        return (F.gelu(output) if self.gelu else output).view(*states.shape[:-1], self.out_features)

    def _apply_per_token(self, rows: Tensor) -> Tensor:
        scales = (rows.abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)
        integers = (rows / scales).round_().add_(128).to(torch.uint8)
        output = self._multiply(integers, 1.0, 128, None) * scales
        return output if self.bias is None else output.add_(self.bias)

    def _apply_per_tensor(self, rows: Tensor) -> Tensor:
        low, high = (float(end) for end in rows.aminmax())
        scale = max((max(high, 0) - min(low, 0)) / 255, 1e-8)
        zero = min(255, max(0, round(-min(low, 0) / scale)))
        integers = torch.quantize_per_tensor(rows, scale, zero, torch.quint8).int_repr()
        return self._multiply(integers, scale, zero, self.bias)

    def _multiply(self, integers: Tensor, scale: float, zero: int, bias: Tensor | None) -> Tensor:
        weights = self.packed, self.scales, self.zeros
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            integers, scale, zero, *weights, bias, 1.0, 0, torch.float32, "none", [], ""
        )
        return product


def round_to_int8(name: str, activations: str) -> InBedder:
    """Open a model and round the matrices of its blocks."""
    embedder = InBedder(name, dtype="float32")
    for model in (embedder.backbone.model, embedder.backbone.text_model):  # type: ignore[attr-defined]
        for path, module in list(model.named_modules()):
            if isinstance(module, nn.Linear) and ".layer" in path:
                model.set_submodule(path, Int8Linear(module, activations))
    return embedder


def find_nearest(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest other text of each text."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -2)
    return cosines.argmax(1)


def compare(model: InBedder, plain: InBedder, rows: list[str]) -> dict[str, Any]:
    """What stays as it was."""
    same_answers, same_nearest, cosines = [], [], []
    for question in QUESTIONS:
        same_answers += [
            answer == plain_answer
            for answer, plain_answer in zip(model.answer(rows, question), plain.answer(rows, question), strict=True)
        ]
        vectors, expected = model.encode(rows, question), plain.encode(rows, question)
        cosines.append(F.cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(expected)).numpy())
        same_nearest.append(find_nearest(vectors) == find_nearest(expected))
    return {
        "same_answers_percent": round(100 * float(np.mean(same_answers)), 1),
        "same_nearest_percent": round(100 * float(np.mean(same_nearest)), 1),
        "min_cosine": round(float(np.min(cosines)), 4),
        "mean_cosine": round(float(np.mean(cosines)), 4),
    }


def main() -> None:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"int8-{get_capability()}.json")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [str(row["text"]) for row in read_rows(str(REVIEWS))][:TEXTS]
    results: dict[str, Any] = {}
    for name in ("mini", "small"):
        plain = InBedder(name, dtype="float32")
        for activations in ("tensor", "token"):
            model = round_to_int8(name, activations)
            seconds: list[tuple[float, float]] = []
            for _ in range(options.rounds + 1):
                times = []
                for way in (plain, model):
                    start = time.perf_counter()
                    way.encode(rows, QUESTIONS[0], show_progress_bar=False)
                    times.append(round(time.perf_counter() - start, 3))
                seconds.append((times[0], times[1]))
            way_name = f"{name}, one scale per {activations}"
            speedup = round(statistics.median(slow / fast for slow, fast in seconds[1:]), 2)
            results[way_name] = {"speedup": speedup, **compare(model, plain, rows), "seconds": seconds[1:]}
            print(way_name, results[way_name], flush=True)
    content = {
        "machine": f"{get_processor()}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads",
        "command": shlex.join(["python", "scripts/bench/measure_int8.py", *sys.argv[1:]]),
        "ways": results,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
