#!/usr/bin/env python3
"""Time two ways to the same vectors in turn: questions together, vectors with answers, cache, guided, and the paper's code.

    python -m scripts.bench.saved_work                        (about 15 minutes on 2 cores)
    python -m scripts.bench.saved_work --only cache
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python -m scripts.bench.saved_work     (as on a CPU without AVX512)

Each CPU feature has a results file: ``scripts/results/benchmark-avx512-bf16.json``. ``smallest_cosine`` compares the vectors of
both ways. The paper's way calls ``generate`` with the hidden states of all layers at all positions, on texts in input order. The
decoder's weights are random: times do not depend on them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inbedder import InBedder
from scripts.bench.benchmark_inputs import QUESTIONS, RESULTS, get_capability, load_plain_weights, make_random_model, texts
from scripts.bench.harness import compute_ratio, describe_run, make_parser, time_in_turn, write_results

Ways = tuple[Callable[[], Any], Callable[[], Any]]
BATCH = 16


@torch.inference_mode()
def encode_as_in_the_paper(model: InBedder, rows: list[str], instruction: str) -> np.ndarray[Any, Any]:
    """Encode texts with 1st-gen as the paper's code does."""
    backbone: Any = model.backbone
    weights = load_plain_weights(model.name, backbone.model.dtype)
    vectors = []
    prompts = model.tokenizer(rows, [instruction] * len(rows))
    for start in range(0, len(prompts), BATCH):
        inputs = backbone.make_inputs([prompt.ids for prompt in prompts[start : start + BATCH]], "left")
        inputs.pop("position_ids", None)
        output = weights.generate(
            **inputs,
            max_new_tokens=3,
            do_sample=False,
            output_hidden_states=True,
            return_dict_in_generate=True,
            pad_token_id=backbone.pad_id,
        )
        vectors += [output.hidden_states[0][-1][row, -1].float().cpu().numpy() for row in range(len(inputs["input_ids"]))]
    return np.stack(vectors)


def make_paper_ways(folder: Path) -> Ways:
    """Encode long texts under ten questions with a decoder of 125M parameters."""
    plain, model = (make_random_model(folder, "opt", "125M", dtype) for dtype in ("float32", None))
    rows = texts(4, 195, 200)
    return (
        lambda: np.stack([encode_as_in_the_paper(plain, rows, question) for question in QUESTIONS]),
        lambda: model.encode_many(rows, QUESTIONS),
    )


def make_joint_ways(_folder: Path) -> Ways:
    """Encode 2,000 short texts under ten questions, one by one and together."""
    rows, mini = texts(2_000, 8, 30), InBedder()
    return (
        lambda: np.stack([mini.encode(rows, question) for question in QUESTIONS]),
        lambda: mini.encode_many(rows, QUESTIONS),
    )


def make_answering_ways(_folder: Path) -> Ways:
    """Encode and answer 500 texts of `mini`, in two passes and in one."""
    rows, mini = texts(500, 8, 30), InBedder()
    return (
        lambda: (mini.answer(rows, QUESTIONS[0]), mini.encode(rows, QUESTIONS[0]))[1],
        lambda: mini.encode(rows, QUESTIONS[0], return_answers=True)[0],
    )


def make_decoding_ways(folder: Path) -> Ways:
    """Encode and answer 16 long texts with a decoder of 125M parameters, in two passes and in one."""
    rows, model = texts(16, 195, 200), make_random_model(folder, "opt", "125M")
    return (
        lambda: (model.answer(rows, QUESTIONS[0]), model.encode(rows, QUESTIONS[0]))[1],
        lambda: model.encode(rows, QUESTIONS[0], return_answers=True)[0],
    )


def make_cached_ways(folder: Path) -> Ways:
    """Encode texts into an empty cache, and from a cache that holds them."""
    rows, numbers, fresh = texts(256, 20, 120), iter(range(1_000)), InBedder()
    caching_model = InBedder(cache=folder / "warm")
    caching_model.encode(rows, QUESTIONS[0])
    return (
        lambda: fresh.replace(cache=folder / f"cold-{next(numbers)}").encode(rows, QUESTIONS[0]),
        lambda: caching_model.encode(rows, QUESTIONS[0]),
    )


def make_guided_ways(_folder: Path) -> Ways:
    """Encode 20,000 short texts, and estimate them from a sample."""
    rows, mini = texts(20_000, 4, 12), InBedder()
    generic = mini.encode(rows)
    return (
        lambda: mini.encode(rows, QUESTIONS[0]),
        lambda: np.asarray(mini.encode_guided(rows, QUESTIONS[0], generic=generic)),
    )


CASES: dict[str, Callable[[Path], Ways]] = {
    "opt 125M: 10 instructions, shared / naive, default precision": make_paper_ways,
    "mini: 10 instructions over 2,000 short texts, shared / separate": make_joint_ways,
    "mini: vectors with answers, one pass / two": make_answering_ways,
    "opt 125M: vectors with answers, one pass / two": make_decoding_ways,
    "mini: warm cache / cold": make_cached_ways,
    "mini: guided / every text read, 20,000 short texts": make_guided_ways,
}
"""Functions that make the slow and the fast way, by name of the case: fast / slow."""


def measure(make_ways: Callable[[Path], Ways], folder: Path, rounds: int) -> dict[str, Any]:
    """Time both ways of a case, and compare their vectors."""
    slow, fast = make_ways(folder)
    seconds = time_in_turn({"slow": slow, "fast": fast}, rounds)
    expected, vectors = slow(), fast()
    cosines = (expected * vectors).sum(-1) / np.linalg.norm(expected, axis=-1) / np.linalg.norm(vectors, axis=-1)
    return {
        **compute_ratio(seconds["slow"], seconds["fast"]),
        "slow_fast": [list(pair) for pair in zip(seconds["slow"], seconds["fast"], strict=True)],
        "unit": "seconds",
        "smallest_cosine": round(float(cosines.min()), 6),
    }


def main() -> None:
    """Measure the chosen cases; the file keeps the others."""
    parser = make_parser(__doc__, RESULTS / f"benchmark-{get_capability()}.json")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    stored_cases = json.loads(options.output.read_text(encoding="utf-8"))["cases"] if options.output.exists() else []
    cases = {case["name"]: case for case in stored_cases}
    for name, make_ways in CASES.items():
        if options.only in name:
            with tempfile.TemporaryDirectory() as folder:
                cases[name] = {"name": name, **measure(make_ways, Path(folder), options.rounds), **describe_run(options)}
            print(name, cases[name]["ratio"], flush=True)
            write_results(options.output, {"cases": [cases[case] for case in CASES if case in cases]})


if __name__ == "__main__":
    main()
