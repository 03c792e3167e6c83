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
are random: times do not depend on them. ``mini`` answers alone (``add_generic=False``), so that each text is read once.
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
from benchmark_inputs import QUESTIONS, RESULTS, SHAPES, capability, plain_weights, processor, random_model, texts

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
    ways: Callable[[Path], Ways]
    """Builds the slow and the fast way; the path is a folder for models."""
    alike: bool = True
    """Whether both ways should give the same vectors."""


@torch.inference_mode()
def naive(model: InBedder, rows: list[str], instruction: str, batch_size: int = BATCH) -> np.ndarray[Any, Any]:
    """1st-gen as the paper's code takes it."""
    backbone: Any = model.backbone
    weights = plain_weights(model.name, backbone.model.dtype)
    found = []
    prompts = model.tokenizer(rows, [instruction] * len(rows))
    for start in range(0, len(prompts), batch_size):
        inputs = backbone._make_inputs(prompts[start : start + batch_size], "left")
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
            found.append(output.hidden_states[0][-1][row, -1].float().cpu().numpy())
    return np.stack(found)


def in_order(model: InBedder, rows: list[str], instruction: str, batch_size: int = BATCH) -> np.ndarray[Any, Any]:
    """Lean passes over batches in the order the texts come."""
    prompts = model.tokenizer(rows, [instruction] * len(rows))
    batches = [prompts[start : start + batch_size] for start in range(0, len(prompts), batch_size)]
    reading = (model.pooling, model.layer, model.options.encoding.sampling)
    return torch.cat([model.backbone.embed(batch, *reading) for batch in batches]).numpy()


def causal_cases(family: str, shape: str) -> Iterator[Case]:
    """Lean against naive, shared against separate, both together, sorted against in order."""
    mixed, more, long, name = texts(48, 5, 250), texts(128, 5, 250), texts(4, 195, 200), f"{family} {shape}"

    def made(slow: Callable[[InBedder], Any], fast: Callable[[InBedder], Any], dtype: str | None = "float32") -> Any:
        def ways(folder: Path) -> Ways:
            plain, ours = random_model(folder, family, shape), random_model(folder, family, shape, dtype)
            return lambda: slow(plain), lambda: fast(ours)

        return ways

    lean = lambda model: model.encode(mixed, QUESTIONS[0], batch_size=BATCH)  # noqa: E731
    by_length = lambda model: model.encode(more, QUESTIONS[0], batch_size=BATCH)  # noqa: E731
    shared = lambda model: model.encode_many(long, QUESTIONS)  # noqa: E731
    plain = lambda model: naive(model, mixed, QUESTIONS[0])  # noqa: E731
    yield Case(f"{name}: lean pass / naive, float32", 1.8, made(plain, lean))
    if has_fast_bf16(torch.device("cpu")):  # else the default is float32, as above
        yield Case(f"{name}: lean pass / naive, bfloat16", 3.0, made(plain, lean, None))
    yield Case(f"{name}: sorted / input order", 1.8, made(lambda model: in_order(model, more, QUESTIONS[0]), by_length))
    separate = lambda model: np.stack([model.encode(long, question) for question in QUESTIONS])  # noqa: E731
    yield Case(f"{name}: 10 instructions, shared / separate", 4.0, made(separate, shared))
    naives = lambda model: np.stack([naive(model, long, question) for question in QUESTIONS])  # noqa: E731
    yield Case(f"{name}: 10 instructions, shared / naive, default precision", 12.0, made(naives, shared, None))

    def remembering(folder: Path) -> Ways:
        plain = random_model(folder, family, shape)
        remembered = InBedder(plain.name, dtype="float32", text_memory="1G")

        def one_by_one() -> Any:
            remembered.runner.kv_cache = KVCache(10**9)  # the first question reads the texts
            return separate(remembered)

        return lambda: separate(plain), one_by_one

    yield Case(f"{name}: 10 instructions one by one, texts remembered / read again", 3.0, remembering)


def mini_cases() -> Iterator[Case]:
    """The bundled default against sentence-transformers on the same base, and against itself with a cache or a map."""

    def against(rows: list[str]) -> Callable[[Path], Ways]:
        def ways(_folder: Path) -> Ways:
            from sentence_transformers import SentenceTransformer

            plain, mini = SentenceTransformer(str(find_base_folder()), device="cpu"), InBedder(add_generic=False)
            return lambda: plain.encode(rows), lambda: mini.encode(rows, QUESTIONS[0])

        return ways

    def cached(folder: Path) -> Ways:
        rows, turn = texts(256, 20, 120), iter(range(1_000))
        kept = InBedder(add_generic=False, cache=folder / "kept")
        kept.encode(rows, QUESTIONS[0])
        fresh = InBedder(add_generic=False)

        def cold() -> Any:
            return fresh.replace(cache=folder / f"cold-{next(turn)}").encode(rows, QUESTIONS[0])

        return cold, lambda: kept.encode(rows, QUESTIONS[0])

    def mapped(_folder: Path) -> Ways:
        many, mini = texts(20_000, 4, 12), InBedder(add_generic=False)
        generic = mini.encode(many)
        return lambda: mini.encode(many, QUESTIONS[0]), lambda: np.asarray(
            mini.encode_guided(many, QUESTIONS[0], generic=generic)
        )

    def together(_folder: Path) -> Ways:
        rows, mini = texts(2_000, 8, 30), InBedder(add_generic=False)
        separate = lambda: np.stack([mini.encode(rows, question) for question in QUESTIONS])  # noqa: E731
        return separate, lambda: mini.encode_many(rows, QUESTIONS)

    for name, rows in (("200 words", texts(64, 190, 200)), ("8 to 30 words", texts(512, 8, 30))):
        yield Case(f"mini: default precision / sentence-transformers float32, {name}", 2.0, against(rows), alike=False)
    yield Case("mini: 10 instructions over 2,000 short texts, shared / separate", 3.3, together)
    yield Case("mini: warm cache / cold", 100.0, cached)
    yield Case("mini: guided / every text read, 20,000 short texts", 15.0, mapped)


def peak_memory(folder: str, way: str) -> float:
    """MiB above the weights that one way takes at most, in a process of its own."""
    model = random_model(Path(folder), "opt", "125M")
    rows = texts(32, 195, 200)
    encode = (
        (lambda batch: naive(model, batch, QUESTIONS[0], 32))
        if way == "naive"
        else lambda batch: model.encode(batch, QUESTIONS[0])
    )
    encode(rows[:1])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _kib("VmRSS")
    encode(rows)
    return (_kib("VmHWM") - before) / 1024


def _kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def memory(folder: Path) -> dict[str, Any]:
    """One layer's states against those of all layers."""
    random_model(folder, "opt", "125M")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rounds = [[pool.apply(peak_memory, (str(folder), way)) for way in ("naive", "lean")] for _ in range(5)]
    return summary(MEMORY, 4.0, rounds) | {"unit": "MiB"}


def outside_of_the_model(rounds: int) -> dict[str, Any]:
    """What tokenization, batches and results take of ``encode``."""
    mini, rows = InBedder(add_generic=False), texts(20_000, 15, 15)
    mini.encode(rows[:500], QUESTIONS[0])
    embed, inside = mini.backbone.embed, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal inside
        start = time.perf_counter()
        found = embed(*arguments)
        inside += time.perf_counter() - start
        return found

    mini.backbone.embed = timed  # type: ignore[method-assign]
    shares = []
    for _ in range(rounds):
        inside, start = 0.0, time.perf_counter()
        mini.encode(rows, QUESTIONS[0])
        shares.append(round(100 * (1 - inside / (time.perf_counter() - start)), 1))
    return {"name": WHOLE, "percent": statistics.median(shares), "rounds": shares}


def guided_line() -> list[dict[str, float]]:
    """How long a new instruction takes over known corpora of growing size; reading them all is extrapolated from 4,000 texts."""
    mini, short = InBedder(add_generic=False), texts(4_000, 4, 12)
    generic = mini.encode(short)
    start = time.perf_counter()
    mini.encode(short, QUESTIONS[0])
    a_text = (time.perf_counter() - start) / len(short)
    line = []
    for count in LINE:
        many = [f"{i} {short[i % len(short)]}" for i in range(count)]
        known = np.resize(generic, (count, generic.shape[1]))
        start = time.perf_counter()
        mini.encode_guided(many, QUESTIONS[0], generic=known)
        line.append(
            {"texts": count, "guided": round(time.perf_counter() - start, 2), "read (extrapolated)": round(a_text * count, 2)}
        )
    return line


def measure(case: Case, folder: Path, rounds: int) -> dict[str, Any]:
    """Time both ways in turn."""
    slow, fast = case.ways(folder)
    a, b = slow(), fast()
    pairs = []
    for _ in range(rounds):
        pair = []
        for way in (slow, fast):
            start = time.perf_counter()
            way()
            pair.append(time.perf_counter() - start)
        pairs.append(pair)
    found = summary(case.name, case.goal, pairs) | {"unit": "seconds"}
    if case.alike:
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        found["smallest_cosine"] = round(float(((a * b).sum(-1) / lengths).min()), 6)
    return found


def summary(name: str, goal: float, pairs: list[list[float]]) -> dict[str, Any]:
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


def held_back() -> str:
    """What the environment lets the CPU do, where it may not do all it can."""
    held = {name: os.environ[name] for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA") if name in os.environ}
    return "".join(f", {name}={value}" for name, value in held.items())


def main() -> None:
    """Measure what is asked for; json and chart are written after every case, and keep those that were not asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"benchmark-{capability()}.json")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="only what takes seconds, in three rounds")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 5)
    about: dict[str, Any] = {
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
        + held_back(),
        "processor": processor(),
        "default_precision": str(InBedder().backbone.model.dtype).removeprefix("torch."),
        "versions": {package: version(package) for package in ("torch", "transformers", "sentence-transformers", "numpy")},
    }
    before = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    if before and {key: before[key] for key in about} != about:
        parser.error(f"{options.output} was measured on another machine or with other versions; give another file.")
    done = {case["name"]: case for case in before.get("cases", [])}
    cases = [case for family in ("opt", "llama") for shape in SHAPES for case in causal_cases(family, shape)] + list(mini_cases())
    jobs: dict[str, Callable[[Path], dict[str, Any]]] = {MEMORY: memory}
    jobs |= {case.name: lambda folder, case=case: measure(case, folder, rounds) for case in cases}
    jobs[WHOLE] = lambda _folder: outside_of_the_model(rounds)
    jobs[LINE_NAME] = lambda _folder: {"name": LINE_NAME, "line": guided_line()}
    options.output.parent.mkdir(exist_ok=True)
    command = " ".join(["python", "scripts/bench/benchmark.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        wanted = [job for job in jobs if options.only in job and (not options.quick or any(part in job for part in QUICK))]
        for name in wanted:
            done[name] = jobs[name](Path(folder)) | {"command": command}
            print(f"{done[name].get('ratio', ''):8}  {name}", flush=True)
            content = about | {"cases": [done[job] for job in jobs if job in done]}
            options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            draw(content, options.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
