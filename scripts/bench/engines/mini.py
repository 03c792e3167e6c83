"""The engines of a CPU for mini, beside sentence-transformers on the same base, which reads texts without the question.

optimum-onnx makes the int8 graph of sentence-transformers and needs transformers below 5, hence an environment of its own
(``sentence-transformers[onnx]``, and the base of inbedder[mini] with ``pip install --no-deps``).
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from typing import Any

import torch

from inbedder import InBedder
from inbedder.models.bundled import find_base_folder
from scripts.bench.benchmark_inputs import QUESTIONS
from scripts.bench.harness import Encode, Engine

FLOAT32 = "inbedder, torch float32"
PLAIN = "sentence-transformers, torch float32"
WHOLE_TEXT_QUESTION = "What is the text about?"
"""A question for which most of the vector of `mini` is the text's own."""


def load_sentence_transformers(**options: Any) -> Encode:
    """Load the base."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(find_base_folder()), device="cpu", **options)
    return lambda rows: model.encode(rows, show_progress_bar=False)


def load_int8_graph() -> Encode:
    """Load the base in ONNX Runtime, dynamically quantized as sentence-transformers does it for CPUs with VNNI."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    kind = "avx512_vnni"
    with tempfile.TemporaryDirectory() as folder:
        graph = SentenceTransformer(str(find_base_folder()), device="cpu", backend="onnx")
        export_dynamic_quantized_onnx_model(graph, kind, folder)
        shutil.copytree(find_base_folder(), folder, dirs_exist_ok=True)
        settings = {"file_name": f"model_qint8_{kind}.onnx", "export": False}
        model = SentenceTransformer(folder, device="cpu", backend="onnx", model_kwargs=settings)
    return lambda rows: model.encode(rows, show_progress_bar=False)


def load_mini(dtype: str, question: str) -> Encode:
    """Load mini."""
    model = InBedder(dtype=dtype)
    return lambda rows: model.encode(rows, question, show_progress_bar=False)


ENGINES = {
    PLAIN: Engine("sentence-transformers", load_sentence_transformers),
    "sentence-transformers, torch bfloat16": Engine(
        "sentence-transformers", partial(load_sentence_transformers, model_kwargs={"dtype": torch.bfloat16})
    ),
    "sentence-transformers, ONNX Runtime int8": Engine("optimum-onnx", load_int8_graph),
    FLOAT32: Engine("torch", partial(load_mini, "float32", QUESTIONS[0]), FLOAT32),
    f"{FLOAT32}, question about the whole text": Engine("torch", partial(load_mini, "float32", WHOLE_TEXT_QUESTION)),
    "inbedder, torch bfloat16": Engine("torch", partial(load_mini, "bfloat16", QUESTIONS[0]), FLOAT32),
}
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "optimum-onnx")
