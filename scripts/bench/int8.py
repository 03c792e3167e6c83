"""Measure what 8-bit integers on a CPU gain and lose: the blocks' matrices by oneDNN, weights and activations in int8.

    python -m scripts.bench.int8                          (about 12 minutes on 2 cores; needs inbedder[mini] and small)
    python -m scripts.bench.int8 --models medium --texts 32 -o scripts/results/int8-medium.json
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python -m scripts.bench.int8      (as on a CPU without AVX512)

Weights have a scale per row. Activations have one scale per batch ("tensor"), which oneDNN takes as it is, or one per token,
which costs passes of torch. They and bfloat16 are compared with float32 in the same run: the median of the rounds' ratios of
time, the memory of the weights, the share of answers under three questions that stay, the cosines of the vectors, and the share
of texts whose nearest text stays. The package has no int8.
"""

from __future__ import annotations

import itertools
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder import InBedder
from inbedder.io.tables import read_rows
from scripts.bench.benchmark_inputs import RESULTS, get_capability
from scripts.bench.harness import REVIEWS, compute_ratio, describe_run, make_parser, time_in_turn, write_results

NUMBERS = itertools.count(100)
"""Numbers that make texts new."""
QUESTIONS = ["Do they like it?", "What is it about?", "How does the customer feel?"]


class Int8Linear(nn.Module):
    """A linear layer whose weights and inputs are rounded to 8 bits."""

    def __init__(self, linear: Any, activations: str) -> None:
        """Round the weights of a layer, one scale per row."""
        super().__init__()
        self.weight, self.bias = linear.weight.new_empty(0), linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.gelu, self.activations = getattr(linear, "gelu", False), activations
        weight = linear.weight.float()
        self.scales = (weight.abs().amax(1) / 127).clamp(min=1e-8)
        integers = (weight / self.scales[:, None]).round().to(torch.int8)
        self.packed, self.num_bytes = torch.ops.onednn.qlinear_prepack(integers, None), integers.numel()
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


WAYS: dict[str, Callable[[str], InBedder]] = {
    "float32": lambda name: InBedder(name, dtype="float32"),
    "bfloat16": lambda name: InBedder(name, dtype="bfloat16"),
    "one scale per tensor": lambda name: round_to_int8(name, "tensor"),
    "one scale per token": lambda name: round_to_int8(name, "token"),
}


def measure_weights(model: InBedder) -> int:
    """Measure the memory of a model's weights, and of its second model's, in MB."""
    sizes: dict[int, int] = {}
    backbones = [model.backbone, *([model.pipeline.second_model.backbone] if model.pipeline.second_model else [])]
    for backbone in backbones:
        for module in (backbone.model, getattr(backbone, "text_model", None)):
            for part in () if module is None else module.modules():
                if isinstance(part, Int8Linear):
                    sizes[id(part)] = part.num_bytes
                for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
                    sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return round(sum(sizes.values()) / 1e6)


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


def make_timed(model: InBedder, rows: list[str]) -> Callable[[], Any]:
    """Make a function that encodes new texts at each call, because a model keeps what it has read of a text."""

    def encode() -> Any:
        number = next(NUMBERS)
        return model.encode([f"{row} ({number})" for row in rows], QUESTIONS[0], show_progress_bar=False)

    return encode


def main() -> None:
    """Measure the models."""
    parser = make_parser(__doc__, RESULTS / f"int8-{get_capability()}.json")
    parser.add_argument("--models", nargs="+", default=["mini", "small"])
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [str(row["text"]) for row in read_rows(str(REVIEWS))][: options.texts]
    results: dict[str, Any] = {}
    for name in options.models:
        plain = InBedder(name, dtype="float32")
        for way, load in WAYS.items():
            model = load(name)
            seconds = time_in_turn({"plain": make_timed(plain, rows), way: make_timed(model, rows)}, options.rounds)
            speedup = compute_ratio(seconds["plain"], seconds[way])["ratio"]
            results[f"{name}, {way}"] = {
                "speedup": speedup,
                "texts_per_second": round(len(rows) / statistics.median(seconds[way]), 1),
                "weights_mb": measure_weights(model),
                **compare(model, plain, rows),
                "seconds": seconds,
            }
            print(name, way, results[f"{name}, {way}"], flush=True)
            del model
    write_results(options.output, {**describe_run(options), "texts": options.texts, "ways": results})


if __name__ == "__main__":
    main()
