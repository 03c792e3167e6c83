#!/usr/bin/env python3
"""Compare the bundled default on the engines of a CPU with sentence-transformers on the same base: speed and changed vectors.

    python scripts/bench/compare_engines.py            (about 3 minutes on 2 cores; needs inbedder[mini])
    python scripts/bench/compare_engines.py --only torchao --rounds 3
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python scripts/bench/compare_engines.py
    .venv-onnx/bin/python scripts/bench/compare_engines.py --only "sentence-transformers, ONNX"

torchao and optimum-onnx are measured where they are installed, and what an earlier call measured of others stays in the
results: optimum-onnx makes sentence-transformers' own int8 graph and needs transformers below 5, so an environment of its own
(``sentence-transformers[onnx]``, and the base of inbedder[mini] with ``pip install --no-deps``). All ways of a call run in turn,
round by round after a warm-up, over 512 texts of 8 to 30 words and 64 of 190 to 200 under one question; the median of the rounds'
ratios to sentence-transformers in float32 counts. Of ours: the
least and the mean cosine to the float32 vectors, the scores on the shipped sets, and the share of 400 reviews whose answer begins
with the same word as in float32. Results are kept by what the CPU can do, a file each: ``results/engines-avx512-bf16.json``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_inputs import QUESTIONS, RESULTS, get_capability, get_processor, texts

from inbedder import InBedder
from inbedder.io.tables import read_rows
from inbedder.models.bundled import find_base_folder
from inbedder_evaluation.tasks import Data, build_tasks

Encode = Callable[[list[str], Any], Any]
FLOAT32 = "inbedder, torch float32"
WHOLE_TEXT = "question about the whole text"
"""The end of the names of ways that are asked ``WHOLE_TEXT_QUESTION``; most of the vector of `mini` is then the text's own."""
WHOLE_TEXT_QUESTION = "What is the text about?"
NAIVE = "sentence-transformers, torch float32"
REVIEWS = Path(__file__).parents[2] / "inbedder" / "demo_texts" / "reviews.csv"
ASKED = "What does the customer talk about?"


def load_sentence_transformers(**options: Any) -> Any:
    """The base alone."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(find_base_folder()), device="cpu", **options)


def load_sentence_transformers_int8() -> Any:
    """The base in ONNX Runtime, dynamically quantized as sentence-transformers does it for CPUs with VNNI."""
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    kind = "avx512_vnni"
    with tempfile.TemporaryDirectory() as folder:
        export_dynamic_quantized_onnx_model(load_sentence_transformers(backend="onnx"), kind, folder)
        shutil.copytree(find_base_folder(), folder, dirs_exist_ok=True)
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(
            folder, device="cpu", backend="onnx", model_kwargs={"file_name": f"model_qint8_{kind}.onnx", "export": False}
        )


def compile_model(model: InBedder) -> InBedder:
    """Each block by torch.compile, once for all shapes."""
    for block in model.backbone.body.encoder.layer:  # type: ignore[attr-defined]
        block.forward = torch.compile(block.forward, dynamic=True)
    return model


def load_torchao(config: str) -> InBedder:
    """The blocks' matrices by torchao."""
    import torchao.quantization as library

    model = InBedder()
    library.quantize_(model.backbone.body.encoder, getattr(library, config)())  # type: ignore[attr-defined]
    return model


BUILDERS: dict[str, Callable[[], Any]] = {
    NAIVE: load_sentence_transformers,
    "sentence-transformers, torch bfloat16": lambda: load_sentence_transformers(model_kwargs={"dtype": torch.bfloat16}),
    "sentence-transformers, ONNX Runtime int8": load_sentence_transformers_int8,
    FLOAT32: lambda: InBedder(dtype="float32"),
    f"{FLOAT32}, {WHOLE_TEXT}": lambda: InBedder(dtype="float32"),
    "inbedder, torch bfloat16": lambda: InBedder(dtype="bfloat16"),
    "inbedder, torch.compile bfloat16": lambda: compile_model(InBedder(dtype="bfloat16")),
    "inbedder, torchao int8, weights alone": lambda: load_torchao("Int8WeightOnlyConfig"),
    "inbedder, torchao int8, compiled": lambda: compile_model(load_torchao("Int8DynamicActivationInt8WeightConfig")),
}
NEEDED = {
    "torchao": "torchao",
    "sentence-transformers, ONNX": "optimum-onnx",
}
"""The package that an engine's name asks for."""


PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "optimum-onnx", "torchao")


def is_installed(package: str) -> bool:
    """Return whether a package is there."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def find_missing(name: str) -> str | None:
    """The package that an engine needs and that is not installed."""
    return next((package for part, package in NEEDED.items() if part in name and not is_installed(package)), None)


def make_encoder(model: Any) -> Encode:
    """How a way reads texts; sentence-transformers is asked nothing."""
    if isinstance(model, InBedder):
        return lambda rows, question: model.encode(rows, question, show_progress_bar=False)
    return lambda rows, _question: model.encode(rows, show_progress_bar=False)


def make_quality_measure(plain: InBedder) -> Callable[[InBedder], dict[str, float]]:
    """Compare each engine's vectors with a reference engine's."""
    rows = texts(512, 8, 30)
    expected, first_words = torch.from_numpy(plain.encode(rows, QUESTIONS[0])), list_first_words(plain)

    def measure_quality(model: InBedder) -> dict[str, float]:
        cosines = torch.cosine_similarity(torch.from_numpy(model.encode(rows, QUESTIONS[0])), expected)
        scores = {
            task.info.name: round(
                task.evaluate(lambda rows, question: np.asarray(model.encode(list(rows), question)), seed=0)[
                    task.info.main_score
                ],
                1,
            )
            for task in build_tasks(Data(None), ["written"])
        }
        share_of_first_words = np.mean(
            [one == expected for one, expected in zip(list_first_words(model), first_words, strict=True)]
        )
        return {
            "min_cosine": round(cosines.min().item(), 4),
            "mean_cosine": round(cosines.mean().item(), 5),
            **scores,
            "same_first_word_percent": round(100 * float(share_of_first_words), 1),
        }

    return measure_quality


def list_first_words(model: InBedder) -> list[str]:
    """The first word of each answer."""
    reviews = [str(row["text"]) for row in read_rows(str(REVIEWS))]
    return [answer.split(" ")[0] for answer in model.answer(reviews, ASKED)]


def open_engines(name_part: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Open the engines that were asked for and warm each up; of those that cannot be opened, note why."""
    chosen_engines = {NAIVE} | {name for name in BUILDERS if name_part in name}
    if any(name.startswith("inbedder") for name in chosen_engines):
        chosen_engines.add(FLOAT32)
    ways: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name in [name for name in BUILDERS if name in chosen_engines]:
        if package := find_missing(name):
            notes[name] = f"{package} is not installed"
            continue
        try:
            ways[name] = BUILDERS[name]()
            make_encoder(ways[name])(texts(40, 8, 30), QUESTIONS[0])
        except Exception as error:  # an engine that cannot take the model is a finding
            notes[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            ways.pop(name, None)
            print(name, notes[name], flush=True)
    return ways, notes


def time_ways(ways: dict[str, Any], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each engine over each corpus."""
    corpora = {"8 to 30 words": texts(512, 8, 30), "200 words": texts(64, 190, 200)}
    seconds: dict[str, dict[str, list[float]]] = {name: {corpus: [] for corpus in corpora} for name in ways}
    for corpus, rows in corpora.items():
        for turn in range(rounds + 1):
            for name, model in ways.items():
                question = WHOLE_TEXT_QUESTION if name.endswith(WHOLE_TEXT) else QUESTIONS[0]
                start = time.perf_counter()
                make_encoder(model)(rows, question)
                if turn:
                    seconds[name][corpus].append(round(time.perf_counter() - start, 4))
    return seconds


def main() -> None:
    """Measure what is installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"engines-{get_capability()}.json")
    parser.add_argument("--only", default="", help="only engines whose name contains this, and what they are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ways, notes = open_engines(options.only)
    seconds = time_ways(ways, options.rounds)
    compare = make_quality_measure(ways[FLOAT32]) if FLOAT32 in ways else None
    made_by = {
        "command": shlex.join(["python", "scripts/bench/compare_engines.py", *sys.argv[1:]]),
        "versions": {package: version(package) for package in PACKAGES if is_installed(package)},
    }
    results: dict[str, Any] = {}
    for name, model in ways.items():
        ratios = {
            corpus: round(statistics.median(slow / fast for slow, fast in zip(seconds[NAIVE][corpus], times, strict=True)), 2)
            for corpus, times in seconds[name].items()
        }
        of_ours = compare(model) if compare and isinstance(model, InBedder) else {}
        results[name] = {"speedup": ratios, **of_ours, "seconds": seconds[name], **made_by}
        print(name, ratios, of_ours, flush=True)
    write(options.output, results, notes)


def write(output: Path, results: dict[str, Any], notes: dict[str, str]) -> None:
    """Store the results together with those of earlier calls."""
    before = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {"engines": {}}
    engines = results | before["engines"] | {name: one for name, one in results.items() if name not in (NAIVE, FLOAT32)}
    content = {
        "machine": f"{get_processor()}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads",
        "engines": {name: engines[name] for name in BUILDERS if name in engines},
        "not measured": {name: note for name, note in notes.items() if name not in engines},
    }
    output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
