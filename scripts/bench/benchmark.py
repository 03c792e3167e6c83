#!/usr/bin/env python3
"""What lean passes, shared prefixes, the cache and the guided transform save: two ways to one result, side by side in one run.

    python scripts/bench/benchmark.py                                  (make bench; about 40 minutes on 2 cores)
    python scripts/bench/benchmark.py --quick                          (mini alone, three rounds; about 3 minutes)
    python scripts/bench/benchmark.py --only "opt 125M" -o /tmp/some.json
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python scripts/bench/benchmark.py --quick      (as on a CPU without AVX512)

Results are kept by what the CPU can do, a file each: ``results/benchmark-avx512-bf16.json``.

A case runs both ways in turn, round by round after one warm-up, and keeps the median ratio of the rounds with the smallest and
the largest, and the smallest cosine between both ways' vectors. The naive way is written as the paper's code works: ``generate``
with the hidden states of all layers at all positions, texts in the order they come, rows taken out one by one. Causal weights
are random: times do not depend on them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_chart import draw
from benchmark_inputs import (
    QUESTIONS,
    RESULTS,
    SHAPES,
    get_capability,
    get_processor,
    load_plain_weights,
    make_random_model,
    texts,
)

from inbedder import InBedder
from inbedder.backbones.kv_cache import KVCache
from inbedder.backbones.weights import has_fast_bf16
from inbedder.models.bundled import find_base_folder

Ways = tuple[Callable[[], Any], Callable[[], Any]]

BATCH = 16
LINE = (20_000, 100_000, 1_000_000)
MEMORY = "opt 125M: memory above the weights, one layer / all layers"
WHOLE = "mini: percent of a whole call outside of the model, 20,000 texts of 15 words"
LINE_NAME = "mini: guided, seconds by size of the corpus"
QUICK = ("sentence-transformers", "warm cache")
"""Parts of the names of the cases that take seconds."""


@dataclass(frozen=True)
class Case:
    """Two ways to one result."""

    name: str
    """What is compared: the fast way / the slow way."""
    goal: float
    """The ratio that is aimed at."""
    make_ways: Callable[[Path], Ways]
    """Builds the slow and the fast way; the path is a folder for models."""
    alike: bool = True
    """Whether both ways should give the same vectors."""


@torch.inference_mode()
def encode_naively(model: InBedder, rows: list[str], instruction: str, batch_size: int = BATCH) -> np.ndarray[Any, Any]:
    """1st-gen as the paper's code takes it."""
    backbone: Any = model.backbone
    weights = load_plain_weights(model.name, backbone.model.dtype)
    results = []
    prompts = model.tokenizer(rows, [instruction] * len(rows))
    for start in range(0, len(prompts), batch_size):
        inputs = backbone.make_inputs([prompt.ids for prompt in prompts[start : start + batch_size]], "left")
        inputs.pop("position_ids", None)
        output = weights.generate(
            **inputs,
            max_new_tokens=3,
            do_sample=False,
            output_hidden_states=True,
            return_dict_in_generate=True,
            pad_token_id=backbone.pad_id,
        )
        for row in range(len(inputs["input_ids"])):
            results.append(output.hidden_states[0][-1][row, -1].float().cpu().numpy())
    return np.stack(results)


def encode_in_order(model: InBedder, rows: list[str], instruction: str, batch_size: int = BATCH) -> np.ndarray[Any, Any]:
    """Lean passes over batches in the order the texts come."""
    prompts = model.tokenizer(rows, [instruction] * len(rows))
    batches = [prompts[start : start + batch_size] for start in range(0, len(prompts), batch_size)]
    reading = (model.pooling, model.layer, model.options.encoding.sampling)
    return torch.cat([model.backbone.embed(batch, *reading) for batch in batches]).numpy()


def list_causal_cases(family: str, shape: str) -> Iterator[Case]:
    """Lean against naive, shared against separate, both together, sorted against in order."""
    mixed, more, long, name = texts(48, 5, 250), texts(128, 5, 250), texts(4, 195, 200), f"{family} {shape}"

    def make_case(slow: Callable[[InBedder], Any], fast: Callable[[InBedder], Any], dtype: str | None = "float32") -> Any:
        def make_ways(folder: Path) -> Ways:
            plain, ours = make_random_model(folder, family, shape), make_random_model(folder, family, shape, dtype)
            return lambda: slow(plain), lambda: fast(ours)

        return make_ways

    lean = lambda model: model.encode(mixed, QUESTIONS[0], batch_size=BATCH)  # noqa: E731
    by_length = lambda model: model.encode(more, QUESTIONS[0], batch_size=BATCH)  # noqa: E731
    shared = lambda model: model.encode_many(long, QUESTIONS)  # noqa: E731
    plain = lambda model: encode_naively(model, mixed, QUESTIONS[0])  # noqa: E731
    yield Case(f"{name}: lean pass / naive, float32", 1.8, make_case(plain, lean))
    if has_fast_bf16(torch.device("cpu")):  # else the default is float32, as above
        yield Case(f"{name}: lean pass / naive, bfloat16", 3.0, make_case(plain, lean, None))
    yield Case(
        f"{name}: sorted / input order", 1.8, make_case(lambda model: encode_in_order(model, more, QUESTIONS[0]), by_length)
    )
    separate = lambda model: np.stack([model.encode(long, question) for question in QUESTIONS])  # noqa: E731
    yield Case(f"{name}: 10 instructions, shared / separate", 4.0, make_case(separate, shared))
    naives = lambda model: np.stack([encode_naively(model, long, question) for question in QUESTIONS])  # noqa: E731
    yield Case(f"{name}: 10 instructions, shared / naive, default precision", 12.0, make_case(naives, shared, None))

    def make_remembering_ways(folder: Path) -> Ways:
        plain = make_random_model(folder, family, shape)
        remembering_model = InBedder(plain.name, dtype="float32", text_memory="1G")

        def encode_one_by_one() -> Any:
            remembering_model.pipeline.runner.kv_cache = KVCache(10**9)  # the first question reads the texts
            return separate(remembering_model)

        return lambda: separate(plain), encode_one_by_one

    yield Case(f"{name}: 10 instructions one by one, texts remembered / read again", 3.0, make_remembering_ways)


def list_mini_cases() -> Iterator[Case]:
    """The bundled default against sentence-transformers on the same base, and against itself with a cache or a map."""

    def make_plain_comparison(rows: list[str]) -> Callable[[Path], Ways]:
        def make_ways(_folder: Path) -> Ways:
            from sentence_transformers import SentenceTransformer

            plain, mini = SentenceTransformer(str(find_base_folder()), device="cpu"), InBedder()
            return lambda: plain.encode(rows), lambda: mini.encode(rows, QUESTIONS[0])

        return make_ways

    def make_cached_ways(folder: Path) -> Ways:
        rows, turn = texts(256, 20, 120), iter(range(1_000))
        caching_model = InBedder(cache=folder / "kept")
        caching_model.encode(rows, QUESTIONS[0])
        fresh = InBedder()

        def encode_cold() -> Any:
            return fresh.replace(cache=folder / f"cold-{next(turn)}").encode(rows, QUESTIONS[0])

        return encode_cold, lambda: caching_model.encode(rows, QUESTIONS[0])

    def make_guided_ways(_folder: Path) -> Ways:
        many, mini = texts(20_000, 4, 12), InBedder()
        generic = mini.encode(many)
        return lambda: mini.encode(many, QUESTIONS[0]), lambda: np.asarray(
            mini.encode_guided(many, QUESTIONS[0], generic=generic)
        )

    def make_joint_ways(_folder: Path) -> Ways:
        rows, mini = texts(2_000, 8, 30), InBedder()
        separate = lambda: np.stack([mini.encode(rows, question) for question in QUESTIONS])  # noqa: E731
        return separate, lambda: mini.encode_many(rows, QUESTIONS)

    for name, rows in (("200 words", texts(64, 190, 200)), ("8 to 30 words", texts(512, 8, 30))):
        yield Case(
            f"mini: default precision / sentence-transformers float32, {name}", 2.0, make_plain_comparison(rows), alike=False
        )
    yield Case("mini: 10 instructions over 2,000 short texts, shared / separate", 3.3, make_joint_ways)
    yield Case("mini: warm cache / cold", 100.0, make_cached_ways)
    yield Case("mini: guided / every text read, 20,000 short texts", 15.0, make_guided_ways)


def measure_peak_memory(folder: str, way: str) -> float:
    """MiB above the weights that one way takes at most, in a process of its own."""
    model = make_random_model(Path(folder), "opt", "125M")
    rows = texts(32, 195, 200)
    encode = (
        (lambda batch: encode_naively(model, batch, QUESTIONS[0], 32))
        if way == "naive"
        else lambda batch: model.encode(batch, QUESTIONS[0])
    )
    encode(rows[:1])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _read_kib("VmRSS")
    encode(rows)
    return (_read_kib("VmHWM") - before) / 1024


def _read_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def measure_memory(folder: Path) -> dict[str, Any]:
    """One layer's states against those of all layers."""
    make_random_model(folder, "opt", "125M")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rounds = [[pool.apply(measure_peak_memory, (str(folder), way)) for way in ("naive", "lean")] for _ in range(5)]
    return summarize(MEMORY, 4.0, rounds) | {"unit": "MiB"}


def measure_overhead(rounds: int) -> dict[str, Any]:
    """What tokenization, batches and results take of ``encode``."""
    mini, rows = InBedder(), texts(20_000, 15, 15)
    mini.encode(rows[:500], QUESTIONS[0])
    embed, inside = mini.backbone.embed, 0.0

    def call_timed(*arguments: Any) -> Any:
        nonlocal inside
        start = time.perf_counter()
        results = embed(*arguments)
        inside += time.perf_counter() - start
        return results

    mini.backbone.embed = call_timed  # type: ignore[method-assign]
    shares = []
    for _ in range(rounds):
        inside, start = 0.0, time.perf_counter()
        mini.encode(rows, QUESTIONS[0])
        shares.append(round(100 * (1 - inside / (time.perf_counter() - start)), 1))
    return {"name": WHOLE, "percent": statistics.median(shares), "rounds": shares}


def measure_guided() -> list[dict[str, float]]:
    """How long a new instruction takes over known corpora of growing size; reading them all is extrapolated from 4,000 texts."""
    mini, short = InBedder(), texts(4_000, 4, 12)
    generic = mini.encode(short)
    start = time.perf_counter()
    mini.encode(short, QUESTIONS[0])
    a_text = (time.perf_counter() - start) / len(short)
    line = []
    for count in LINE:
        many = [f"{i} {short[i % len(short)]}" for i in range(count)]
        resized_vectors = np.resize(generic, (count, generic.shape[1]))
        start = time.perf_counter()
        mini.encode_guided(many, QUESTIONS[0], generic=resized_vectors)
        line.append(
            {"texts": count, "guided": round(time.perf_counter() - start, 2), "read (extrapolated)": round(a_text * count, 2)}
        )
    return line


def measure(case: Case, folder: Path, rounds: int) -> dict[str, Any]:
    """Time both ways in turn."""
    slow, fast = case.make_ways(folder)
    a, b = slow(), fast()
    pairs = []
    for _ in range(rounds):
        pair = []
        for way in (slow, fast):
            start = time.perf_counter()
            way()
            pair.append(time.perf_counter() - start)
        pairs.append(pair)
    results = summarize(case.name, case.goal, pairs) | {"unit": "seconds"}
    if case.alike:
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        results["smallest_cosine"] = round(float(((a * b).sum(-1) / lengths).min()), 6)
    return results


def summarize(name: str, goal: float, pairs: list[list[float]]) -> dict[str, Any]:
    """The median of the rounds' ratios, and their spread."""
    ratios = [slow / fast for slow, fast in pairs]
    return {
        "name": name,
        "ratio": round(statistics.median(ratios), 2),
        "smallest": round(min(ratios), 2),
        "largest": round(max(ratios), 2),
        "goal": goal,
        "slow_fast": [[round(seconds, 4) for seconds in pair] for pair in pairs],
    }


def describe_limits() -> str:
    """Describe environment variables that restrict the CPU."""
    limits = {name: os.environ[name] for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA") if name in os.environ}
    return "".join(f", {name}={value}" for name, value in limits.items())


def main() -> None:
    """Measure what is asked for; json and chart are written after every case, and keep those that were not asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"benchmark-{get_capability()}.json")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="only what takes seconds, in three rounds")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 5)
    description: dict[str, Any] = {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
        + describe_limits(),
        "processor": get_processor(),
        "default_precision": str(InBedder().backbone.model.dtype).removeprefix("torch."),
        "versions": {package: version(package) for package in ("torch", "transformers", "sentence-transformers", "numpy")},
    }
    before = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    if before and {key: before[key] for key in description} != description:
        parser.error(f"{options.output} was measured on another machine or with other versions; give another file.")
    finished_cases = {case["name"]: case for case in before.get("cases", [])}
    cases = [case for family in ("opt", "llama") for shape in SHAPES for case in list_causal_cases(family, shape)] + list(
        list_mini_cases()
    )
    jobs: dict[str, Callable[[Path], dict[str, Any]]] = {MEMORY: measure_memory}
    jobs |= {case.name: lambda folder, case=case: measure(case, folder, rounds) for case in cases}
    jobs[WHOLE] = lambda _folder: measure_overhead(rounds)
    jobs[LINE_NAME] = lambda _folder: {"name": LINE_NAME, "line": measure_guided()}
    options.output.parent.mkdir(exist_ok=True)
    command = " ".join(["python", "scripts/bench/benchmark.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        chosen_jobs = [job for job in jobs if options.only in job and (not options.quick or any(part in job for part in QUICK))]
        for name in chosen_jobs:
            finished_cases[name] = jobs[name](Path(folder)) | {"command": command}
            print(f"{finished_cases[name].get('ratio', ''):8}  {name}", flush=True)
            content = description | {"cases": [finished_cases[job] for job in jobs if job in finished_cases]}
            options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            draw(content, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
