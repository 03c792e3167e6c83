#!/usr/bin/env python3
"""The bundled default on the engines of a CPU, beside sentence-transformers on the same base: how fast, and what changes.

    python scripts/compare_engines.py            (about 3 minutes on 2 cores; needs inbedder[mini,onnx])
    python scripts/compare_engines.py --only OpenVINO --rounds 3

torchao and openvino are measured where they are installed; sentence-transformers' own int8 graph is not, as the package that
makes it (optimum-onnx) needs transformers below 5. All ways run in turn, round by round after a warm-up, over 512 texts of 8 to
30 words and 64 of 190 to 200 under one question; the median of the rounds' ratios to sentence-transformers in float32 counts. Of
ours: the least and the mean cosine to the float32 vectors, the scores on the shipped sets, and the share of 400 reviews whose
answer begins with the same word as in float32. Results are kept by what the CPU can do, a file each:
``results/engines-avx512-bf16.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_inputs import QUESTIONS, RESULTS, capability, texts

from evaluation.tasks import Data, build_tasks
from inbedder import InBedder
from inbedder.models.bundled import base_folder
from inbedder.tables import read_rows

Encode = Callable[[list[str], Any], Any]
FLOAT32 = "inbedder, torch float32"
NAIVE = "sentence-transformers, torch float32"
REVIEWS = Path(__file__).parent / "demo_texts" / "reviews.csv"
ASKED = "What does the customer talk about?"


def sentence_transformers(**options: Any) -> Any:
    """The base alone."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(base_folder()), device="cpu", **options)


def compiled(model: InBedder) -> InBedder:
    """Each block by torch.compile, once for all shapes."""
    for block in model.backbone.body.encoder.layer:  # type: ignore[attr-defined]
        block.forward = torch.compile(block.forward, dynamic=True)
    return model


def torchao(config: str) -> InBedder:
    """The blocks' matrices by torchao."""
    import torchao.quantization as library

    model = InBedder()
    library.quantize_(model.backbone.body.encoder, getattr(library, config)())  # type: ignore[attr-defined]
    return model


def openvino() -> InBedder:
    """A row per prompt in OpenVINO's bfloat16 (float32 where the CPU has none)."""
    import openvino as library

    model = InBedder(dtype="float32")
    backbone: Any = model.backbone

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = backbone.body

        def forward(self, input_ids: Any, position_ids: Any, token_type_ids: Any, attention_mask: Any) -> Any:
            given = {"position_ids": position_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}
            return self.body(input_ids=input_ids, **given).last_hidden_state

    example, _ = backbone._inputs(model.tokenizer(["a b c d e", "a b"], ["a b", "c"]))
    with torch.no_grad():
        graph = library.convert_model(States(), example_input=dict(example))
    how = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    request = library.Core().compile_model(graph, "CPU", how).create_infer_request()

    def embed(prompts: Any, *_options: Any) -> Any:
        inputs, is_mask = backbone._inputs(prompts)
        states = torch.from_numpy(request.infer({name: tensor.numpy() for name, tensor in inputs.items()})[0])
        return states[is_mask].view(len(prompts), -1, states.shape[-1]).mean(1)

    backbone.embed = embed
    return model


BUILDERS: dict[str, Callable[[], Any]] = {
    NAIVE: sentence_transformers,
    "sentence-transformers, torch bfloat16": lambda: sentence_transformers(model_kwargs={"dtype": torch.bfloat16}),
    FLOAT32: lambda: InBedder(dtype="float32"),
    "inbedder, torch bfloat16": lambda: InBedder(dtype="bfloat16"),
    "inbedder, torch.compile bfloat16": lambda: compiled(InBedder(dtype="bfloat16")),
    "inbedder, ONNX Runtime int8": lambda: InBedder(backbone="onnx"),
    "inbedder, torchao int8, weights alone": lambda: torchao("Int8WeightOnlyConfig"),
    "inbedder, torchao int8, compiled": lambda: compiled(torchao("Int8DynamicActivationInt8WeightConfig")),
    "inbedder, OpenVINO": openvino,
}
NEEDED = {"torchao": "torchao", "OpenVINO": "openvino", "ONNX": "onnxruntime"}
"""The package that an engine's name asks for."""


def missing(name: str) -> str | None:
    """The package that is not installed."""
    for part, package in NEEDED.items():
        if part in name:
            try:
                version(package)
            except PackageNotFoundError:
                return package
    return None


def encoder(model: Any) -> Encode:
    """How a way reads texts; sentence-transformers is asked nothing."""
    if isinstance(model, InBedder):
        return lambda rows, question: model.encode(rows, question, show_progress_bar=False)
    return lambda rows, _question: model.encode(rows, show_progress_bar=False)


def quality(model: InBedder, expected: Any, first_words: list[str]) -> dict[str, float]:
    """What an engine changes."""
    found = torch.from_numpy(model.encode(texts(512, 8, 30), QUESTIONS[0]))
    cosines = torch.cosine_similarity(found, expected)
    scores = {
        task.info.name: round(
            task.evaluate(lambda rows, asked: np.asarray(model.encode(list(rows), asked)), seed=0)[task.info.main_score], 1
        )
        for task in build_tasks(Data(None), ["written"])
    }
    kept = np.mean([one == other for one, other in zip(beginnings(model), first_words, strict=True)])
    return {
        "least cosine": round(cosines.min().item(), 4),
        "mean cosine": round(cosines.mean().item(), 5),
        **scores,
        "answers kept": round(100 * float(kept), 1),
    }


def beginnings(model: InBedder) -> list[str]:
    """The first word of each answer."""
    reviews = [str(row["text"]) for row in read_rows(str(REVIEWS))]
    return [answer.split(" ")[0] for answer in model.answer(reviews, ASKED)]


def main() -> None:
    """Measure what is installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"engines-{capability()}.json")
    parser.add_argument("--only", default="", help="only engines whose name contains this, and what they are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ways: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name, build in BUILDERS.items():
        if options.only not in name and name not in (NAIVE, FLOAT32):
            continue
        if package := missing(name):
            notes[name] = f"{package} is not installed"
            continue
        try:
            ways[name] = build()
            encoder(ways[name])(texts(40, 8, 30), QUESTIONS[0])
        except Exception as error:  # an engine that cannot take the model is a finding
            notes[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            ways.pop(name, None)
            print(name, notes[name], flush=True)
    corpora = {"8 to 30 words": texts(512, 8, 30), "200 words": texts(64, 190, 200)}
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for corpus, rows in corpora.items():
        for turn in range(options.rounds + 1):
            for name, model in ways.items():
                start = time.perf_counter()
                encoder(model)(rows, QUESTIONS[0])
                if turn:
                    seconds[name].setdefault(corpus, []).append(round(time.perf_counter() - start, 4))
    plain = ways[FLOAT32]
    expected, first_words = torch.from_numpy(plain.encode(corpora["8 to 30 words"], QUESTIONS[0])), beginnings(plain)
    found: dict[str, Any] = {}
    for name, model in ways.items():
        ratios = {
            corpus: round(statistics.median(slow / fast for slow, fast in zip(seconds[NAIVE][corpus], times, strict=True)), 2)
            for corpus, times in seconds[name].items()
        }
        of_ours = quality(model, expected, first_words) if isinstance(model, InBedder) else {}
        found[name] = {"times as fast": ratios, **of_ours, "seconds": seconds[name]}
        print(name, ratios, of_ours, flush=True)
    packages = ("torch", "transformers", "sentence-transformers", "onnxruntime", "openvino", "torchao")
    content = {
        "machine": f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads",
        "versions": {package: version(package) for package in packages if package not in {missing(name) for name in BUILDERS}},
        "command": " ".join(["python", "scripts/compare_engines.py", *sys.argv[1:]]),
        "engines": found,
        "not measured": notes,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
