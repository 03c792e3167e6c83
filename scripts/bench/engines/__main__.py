"""Compare the engines of a CPU: how many times as fast they are as the plain one, and how far their vectors are from float32's.

    python -m scripts.bench.engines mini            (about 3 minutes on 2 cores; needs inbedder[mini])
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m scripts.bench.engines mini
    .venv-onnx/bin/python -m scripts.bench.engines mini --only "sentence-transformers, ONNX"
    python -m scripts.bench.engines SmolLM2-135M-Instruct.Q4_1.gguf
    .venv-vllm/bin/python -m scripts.bench.engines SmolLM2-135M-Instruct.Q4_1.gguf --only vLLM

Engines run in turn, round by round after a warm-up, under one question: 8 to 30 words per text, and for mini also 190 to 200.
``speedup`` is the median of the rounds' ratios to the plain engine. Engines whose package is not installed are left out, and the
results file, one per CPU feature, keeps those of earlier calls.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.benchmark_inputs import RESULTS, get_capability, texts
from scripts.bench.engines import decoders, mini
from scripts.bench.harness import (
    Encode,
    Engine,
    compute_ratio,
    describe_run,
    is_installed,
    make_parser,
    time_in_turn,
    write_results,
)

SHORT, LONG = "8 to 30 words", "200 words"


def measure(
    encoders: dict[str, Encode], engines: dict[str, Engine], plain: str, corpora: dict[str, list[str]], rounds: int
) -> dict[str, dict[str, Any]]:
    """Time loaded engines in turn on each corpus, and compare their vectors of the first with those of their references."""
    vectors = {name: np.asarray(encode(corpora[SHORT]), dtype=np.float64) for name, encode in encoders.items()}
    results: dict[str, dict[str, Any]] = {name: {"speedup": {}, "seconds": {}} for name in encoders}
    for corpus, rows in corpora.items():
        seconds = time_in_turn({name: partial(encode, rows) for name, encode in encoders.items()}, rounds)
        for name, times in seconds.items():
            results[name]["speedup"][corpus] = compute_ratio(seconds[plain], times)["ratio"]
            results[name]["seconds"][corpus] = times
    for name, result in results.items():
        if (reference := vectors.get(engines[name].reference or "")) is not None:
            lengths = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(reference, axis=1)
            result["min_cosine"] = round(float(((vectors[name] * reference).sum(1) / lengths).min()), 4)
    return results


def main() -> None:
    """Measure the engines that are installed, and keep what was measured before."""
    parser = make_parser(__doc__, None)
    parser.add_argument("model", help="mini, or a .gguf file of a decoder")
    parser.add_argument("--only", default="", help="engines whose name contains this, and what they are compared with")
    parser.add_argument("--texts", type=int, help="number of short texts; default: 512 for mini, 256 for a decoder")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.model == "mini":
        engines, plain, name, packages = mini.ENGINES, mini.PLAIN, "engines", mini.PACKAGES
        corpora = {SHORT: texts(options.texts or 512, 8, 30), LONG: texts((options.texts or 512) // 8, 190, 200)}
    else:
        engines, plain, name, packages = decoders.list_engines(options.model), decoders.PLAIN, "decoders", decoders.PACKAGES
        corpora = {SHORT: texts(options.texts or 256, 8, 30)}
    chosen_names = {plain} | {each for each in engines if options.only in each}
    chosen_names |= {engines[each].reference or plain for each in chosen_names}
    encoders = {each: engine.load() for each, engine in engines.items() if each in chosen_names and is_installed(engine.package)}
    results = measure(encoders, engines, plain, corpora, options.rounds)
    run = describe_run(options, packages)
    run["command"] = run["command"].replace(options.model, Path(options.model).name)
    for each, result in results.items():
        print(each, result["speedup"], result.get("min_cosine"), flush=True)
        result |= run
    output = options.output or RESULTS / f"{name}-{get_capability()}.json"
    stored = json.loads(output.read_text(encoding="utf-8"))["engines"] if output.exists() else {}
    content = {each: (stored | results)[each] for each in engines if each in stored | results}
    write_results(output, {"texts": f"{len(corpora[SHORT])} of {SHORT}", "engines": content})


if __name__ == "__main__":
    main()
