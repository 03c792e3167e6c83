#!/usr/bin/env python3
"""Compare the engines of a CPU on mini with sentence-transformers on the same base: speed, vectors, scores and answers.

    python -m scripts.bench.engines            (about 3 minutes on 2 cores; needs inbedder[mini])
    python -m scripts.bench.engines --only torchao --rounds 3
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m scripts.bench.engines
    .venv-onnx/bin/python -m scripts.bench.engines --only "sentence-transformers, ONNX"

torchao and optimum-onnx run where they are installed; the results file keeps the engines of earlier calls. optimum-onnx makes
the int8 graph of sentence-transformers and needs transformers below 5, hence an environment of its own
(``sentence-transformers[onnx]``, and the base of inbedder[mini] with ``pip install --no-deps``). The texts are 512 of 8 to 30
words and 64 of 190 to 200 under one question. ``speedup`` is the median of the rounds' ratios to sentence-transformers in
float32. For inbedder's engines the file also has the minimum and mean cosine to the float32 vectors, the scores on the shipped
sets, and the share of 400 reviews whose answer begins with the same word as in float32. Each CPU feature has a file of its own.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inbedder import InBedder
from inbedder.io.tables import read_rows
from inbedder.models.bundled import find_base_folder
from inbedder_evaluation.tasks import Data, build_tasks
from scripts.bench.benchmark_inputs import QUESTIONS, RESULTS, get_capability, texts
from scripts.bench.harness import (
    REVIEWS,
    compute_ratio,
    describe_run,
    is_installed,
    make_parser,
    time_in_turn,
    write_results,
)

Encode = Callable[[list[str], Any], Any]
FLOAT32 = "inbedder, torch float32"
WHOLE_TEXT = "question about the whole text"
"""The end of the names of ways that are asked ``WHOLE_TEXT_QUESTION``; most of the vector of `mini` is then the text's own."""
WHOLE_TEXT_QUESTION = "What is the text about?"
NAIVE = "sentence-transformers, torch float32"
ANSWER_QUESTION = "What does the customer talk about?"


def load_sentence_transformers(**options: Any) -> Any:
    """Load the base."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(find_base_folder()), device="cpu", **options)


def load_sentence_transformers_int8() -> Any:
    """Load the base in ONNX Runtime, dynamically quantized as sentence-transformers does it for CPUs with VNNI."""
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
    """Compile each block by torch.compile, once for all shapes."""
    for block in model.backbone.body.encoder.layer:  # type: ignore[attr-defined]
        block.forward = torch.compile(block.forward, dynamic=True)
    return model


def load_torchao(config: str) -> InBedder:
    """Quantize the blocks' matrices by torchao."""
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
    "inbedder, torchao int8, weights only": lambda: load_torchao("Int8WeightOnlyConfig"),
    "inbedder, torchao int8, compiled": lambda: compile_model(load_torchao("Int8DynamicActivationInt8WeightConfig")),
}
NEEDED = {
    "torchao": "torchao",
    "sentence-transformers, ONNX": "optimum-onnx",
}
"""The package that engines need, by a part of their names."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "optimum-onnx", "torchao")


def find_missing(name: str) -> str | None:
    """Find a package that an engine needs and that is not installed."""
    return next((package for part, package in NEEDED.items() if part in name and not is_installed(package)), None)


def make_encoder(model: Any) -> Encode:
    """Make the function that encodes texts; sentence-transformers encodes them without the question."""
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
    """List the first word of each answer."""
    reviews = [str(row["text"]) for row in read_rows(str(REVIEWS))]
    return [answer.split(" ")[0] for answer in model.answer(reviews, ANSWER_QUESTION)]


def open_engines(name_part: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Open the chosen engines and warm them up; note why an engine cannot be opened."""
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
    """Time each engine on each corpus."""
    corpora = {"8 to 30 words": texts(512, 8, 30), "200 words": texts(64, 190, 200)}
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for corpus, rows in corpora.items():
        calls = {}
        for name, model in ways.items():
            question = WHOLE_TEXT_QUESTION if name.endswith(WHOLE_TEXT) else QUESTIONS[0]
            calls[name] = partial(make_encoder(model), rows, question)
        for name, times in time_in_turn(calls, rounds).items():
            seconds[name][corpus] = times
    return seconds


def main() -> None:
    """Measure the engines that are installed."""
    parser = make_parser(__doc__, RESULTS / f"engines-{get_capability()}.json")
    parser.add_argument("--only", default="", help="only engines whose name contains this, and what they are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ways, notes = open_engines(options.only)
    seconds = time_ways(ways, options.rounds)
    compare = make_quality_measure(ways[FLOAT32]) if FLOAT32 in ways else None
    run = describe_run(options, PACKAGES)
    results: dict[str, Any] = {}
    for name, model in ways.items():
        ratios = {corpus: compute_ratio(seconds[NAIVE][corpus], times)["ratio"] for corpus, times in seconds[name].items()}
        quality = compare(model) if compare and isinstance(model, InBedder) else {}
        results[name] = {"speedup": ratios, **quality, "seconds": seconds[name], **run}
        print(name, ratios, quality, flush=True)
    write(options.output, results, notes)


def write(output: Path, results: dict[str, Any], notes: dict[str, str]) -> None:
    """Write the results; the file keeps other engines of earlier calls."""
    before = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {"engines": {}}
    engines = results | before["engines"] | {name: one for name, one in results.items() if name not in (NAIVE, FLOAT32)}
    content = {
        "engines": {name: engines[name] for name in BUILDERS if name in engines},
        "not measured": {name: note for name, note in notes.items() if name not in engines},
    }
    write_results(output, content)


if __name__ == "__main__":
    main()
