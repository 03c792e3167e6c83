#!/usr/bin/env python3
"""1st-gen of decoders at the paper's sizes on a GPU, beside vLLM's pooling and sentence-transformers: tokens per second and MFU.

    python scripts/bench/benchmark_gpu.py              (make bench runs it; where there is no GPU it says so)
    python scripts/bench/benchmark_gpu.py --shape "llama 7B" --texts 512
    python scripts/bench/benchmark_gpu.py --device cpu --shape tiny --texts 8 -o /tmp/tiny.json         (tries the script itself)

Weights are random, in bfloat16: times do not depend on them. Ways run in turn, round by round after one warm-up, over the same
prompts; the median round counts. MFU is 2 x parameters x tokens / seconds over what the GPU does at most in bfloat16 without
sparsity, as its maker states it (``PEAK``). Results are kept by GPU: ``results/benchmark-nvidia-h100-80gb-hbm3.json``.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from benchmark_inputs import QUESTIONS, RESULTS, texts
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

from inbedder import InBedder
from inbedder.models.bundled import find_base_folder
from inbedder.prompting.templates import get_template

Way = Callable[[list[str]], Any]

SHAPES: dict[str, Any] = {
    "opt 1.3B": OPTConfig(hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192, word_embed_proj_dim=2048),
    "llama 7B": LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, intermediate_size=11008),
    "tiny": LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128),
}
PEAK = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121, "A10G": 70}
"""bfloat16 TFLOP/s of dense products, from the data sheets of SXM cards; of any other GPU no MFU is given."""


def make_model(folder: Path, shape: str, device: str) -> Path:
    """A folder with a model of that shape."""
    tokenizer = AutoTokenizer.from_pretrained(find_base_folder())
    config = SHAPES[shape]
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 512
    config.pad_token_id, config.bos_token_id, config.eos_token_id = tokenizer.pad_token_id, None, tokenizer.sep_token_id
    kind: Any = OPTForCausalLM if isinstance(config, OPTConfig) else LlamaForCausalLM
    with torch.device(device):
        model = kind._from_config(config, dtype=torch.bfloat16)
    path = folder / shape.replace(" ", "-")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def make_inbedder_way(folder: Path, device: str) -> Way:
    """Our own passes."""
    model = InBedder(folder, device=device, dtype="bfloat16")
    return lambda rows: model.encode(rows, QUESTIONS[0], batch_size=256)


def make_vllm_way(folder: Path, device: str) -> Way:
    """Pooling by vLLM, asked through our own backbone."""
    model = InBedder(folder, backbone="vllm: {gpu_memory_utilization: 0.8}", device=device)
    return lambda rows: model.encode(rows, QUESTIONS[0], batch_size=len(rows))


def make_sentence_transformers_way(folder: Path, device: str) -> Way:
    """sentence-transformers with the last token's state of the same prompts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder), model_kwargs={"dtype": torch.bfloat16})
    transformer.tokenizer.padding_side = "left"
    pool = Pooling(transformer.get_word_embedding_dimension(), pooling_mode="lasttoken")
    model = SentenceTransformer(modules=[transformer, pool], device=device)
    template = get_template()
    return lambda rows: model.encode([template.render(row, QUESTIONS[0]).string for row in rows], batch_size=64)


WAYS: dict[str, Callable[[Path, str], Way]] = {
    "inbedder": make_inbedder_way,
    "sentence-transformers": make_sentence_transformers_way,
    "vllm": make_vllm_way,
}


@contextmanager
def hold_memory() -> Iterator[None]:
    """Give the GPU's memory back after a way, so that each has it for itself."""
    try:
        yield
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def measure(folder: Path, device: str, rows: list[str], rounds: int) -> dict[str, Any]:
    """Every way that is installed, one after another."""
    model = InBedder(folder, device="cpu", dtype="bfloat16")
    backbone: Any = model.backbone
    tokens = sum(len(prompt.ids) for prompt in model.tokenizer(rows, [QUESTIONS[0]] * len(rows)))
    parameters = sum(tensor.numel() for name, tensor in backbone.body.named_parameters() if "embed" not in name)
    name = torch.cuda.get_device_name(0) if device == "cuda" else "cpu"
    peak = next((peak for card, peak in PEAK.items() if card in name), None)
    del model, backbone
    results: dict[str, Any] = {"tokens": tokens, "parameters without embeddings": parameters}
    first = None
    for way, build in WAYS.items():
        if way == "vllm" and (device == "cpu" or not find_spec("vllm")):
            continue
        with hold_memory():
            encode, times = build(folder, device), []
            for _ in range(rounds + 1):
                start = time.perf_counter()
                vectors = torch.as_tensor(encode(rows)).float().cpu()
                times.append(time.perf_counter() - start)
            seconds = statistics.median(times[1:])
            results[way] = {"seconds": [round(one, 4) for one in times[1:]], "tokens per second": round(tokens / seconds)}
            first = vectors if first is None else first
            results[way]["smallest cosine to inbedder's"] = round(torch.cosine_similarity(vectors, first).min().item(), 4)
            if peak:
                results[way]["MFU"] = round(2 * parameters * tokens / seconds / peak / 1e12, 3)
            del encode
    return results


def main() -> None:
    """Measure the asked shapes; the file is written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may repeat; both of the paper's sizes if not given")
    parser.add_argument("--texts", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("There is no GPU here: nothing to measure.")
        return
    card = torch.cuda.get_device_name(0) if options.device == "cuda" else "cpu"
    output = options.output or RESULTS / f"benchmark-{card.lower().replace(' ', '-')}.json"
    rows = texts(options.texts, 8, 200)
    content = {
        "machine": card,
        "torch": torch.__version__,
        "command": " ".join(["python", "scripts/bench/benchmark_gpu.py", *sys.argv[1:]]),
    }
    for shape in options.shape or ["opt 1.3B", "llama 7B"]:
        with tempfile.TemporaryDirectory() as folder:
            content[shape] = measure(make_model(Path(folder), shape, options.device), options.device, rows, options.rounds)
        print(json.dumps({shape: content[shape]}, indent=1), flush=True)
        output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
