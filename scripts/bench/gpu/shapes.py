"""Measure decoders at the paper's sizes with inbedder, the paper's code and sentence-transformers: tokens per second, MFU.

Weights are random, in bfloat16: times do not depend on them. The paper's way is written as its authors' code works: ``generate``
for every vector, with the hidden states of all layers at all positions, and a loop over the texts of a batch. MFU is 2 x
parameters without embeddings x tokens / seconds over what the GPU does at most in bfloat16 without sparsity, as its maker states
it (``PEAK``).
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, OPTConfig, PreTrainedTokenizerBase

from inbedder import InBedder
from inbedder.backbones.causal import build_causal_backbone
from inbedder.backbones.hub import ModelFiles, Settings
from inbedder.backbones.revision import WeightFiles
from inbedder.backbones.weights import LoadedModel, ResolvedModel
from inbedder.encoding.pipeline import EncodingPipeline
from inbedder.options import Options, Reencoding
from scripts.bench.benchmark_inputs import QUESTIONS, texts
from scripts.bench.gpu.base import CARRIED, find_base
from scripts.bench.gpu.timing import Record, compare_vectors, compute_median, measure_memory, time_rounds

Encode = Callable[[list[str]], Any]

SHAPES: dict[str, Any] = {
    "OPT-1.3B": OPTConfig(hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192, word_embed_proj_dim=2048),
    "Llama-7B": LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, intermediate_size=11008),
}
TINY_SHAPES: dict[str, Any] = {
    "tiny": LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
}
PEAK = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121, "A10G": 70}
"""bfloat16 TFLOP/s of dense products, from the data sheets of SXM cards; of any other GPU no MFU is given."""
MAX_SECONDS = 7.0
"""The time after which a way is not run again; it runs at most five times."""
NEW_TOKENS = 3
"""Length of an answer, as in the paper."""


def load_tokenizer() -> PreTrainedTokenizerBase:
    """Load the tokenizer of mini's base, which serves models of random weights as well as any."""
    with tempfile.TemporaryDirectory() as temporary:
        return AutoTokenizer.from_pretrained(find_base(CARRIED, Path(temporary))[0])


def fill_config(shape: Any, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Set the sizes and ids of the tokenizer. No token ends an answer, so that every answer has its full length."""
    config = deepcopy(shape)
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 512
    config.pad_token_id, config.bos_token_id, config.eos_token_id = tokenizer.pad_token_id, None, None
    return config


def build_model(config: Any, tokenizer: PreTrainedTokenizerBase, device: str) -> InBedder:
    """Build a causal LM of random weights on the device, without writing them to disk."""
    with torch.device(device):
        weights = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    files = WeightFiles((), None, None, "")
    resolved = ResolvedModel(ModelFiles("random weights"), config, tokenizer, Settings(), None, {}, files)
    loaded = LoadedModel(**vars(resolved), model=weights.eval(), kind="causal", untrained=())
    options = Options.parse(model="random weights", device=device, max_new_tokens=NEW_TOKENS)
    backbone, settings = build_causal_backbone(loaded, options.model)
    backbone.weight_files = files
    return InBedder.from_pipeline(EncodingPipeline.compose(options, settings, backbone, None, None, None, InBedder))


@torch.inference_mode()
def encode_as_in_the_paper(model: InBedder, rows: Sequence[str], batch_size: int) -> np.ndarray[Any, Any]:
    """Encode texts with 1st-gen of the last layer as the authors' code does; its other poolings take as long."""
    backbone: Any = model.backbone
    prompts = model.tokenizer(list(rows), [QUESTIONS[0]] * len(rows))
    order = np.argsort([-len(prompt.ids) for prompt in prompts], kind="stable")
    vectors = np.empty((len(rows), backbone.model.config.hidden_size), dtype=np.float32)
    for start in range(0, len(rows), batch_size):
        batch = order[start : start + batch_size]
        inputs = backbone.make_inputs([prompts[row].ids for row in batch], "left")
        inputs.pop("position_ids", None)
        output = backbone.model.generate(
            **inputs,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            output_hidden_states=True,
            output_scores=True,
            return_dict_in_generate=True,
            pad_token_id=backbone.pad_id,
        )
        for number, row in enumerate(batch):  # each text's state of each layer, as the authors keep them
            states = [layer[number, -1].float().cpu().numpy() for layer in output.hidden_states[0]]
            vectors[row] = states[-1]
    return vectors


def make_sentence_transformers_way(model: InBedder, folder: Path, device: str) -> Encode:
    """Make an encoder of sentence-transformers that pools the last token's state of the same prompts, with the same weights."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    backbone: Any = model.backbone
    config = deepcopy(backbone.model.config)
    config.num_hidden_layers = 1
    AutoModel.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)
    transformer = Transformer(str(folder), model_kwargs={"dtype": torch.bfloat16})
    transformer.model = backbone.body
    transformer.tokenizer.padding_side = "left"
    dimension = backbone.model.config.hidden_size
    plain = SentenceTransformer(modules=[transformer, Pooling(dimension, pooling_mode="lasttoken")], device=device)
    return lambda rows: plain.encode([model.prompt(row, QUESTIONS[0]) for row in rows], batch_size=32)


def make_reencoding_way(model: InBedder, base: Path) -> Encode:
    """Make an encoder by the mean vector of ten sampled answers, embedded by mini's base."""
    reencoded = model.replace(pooling="re-enc", reencoding=Reencoding(encoder=str(base)))
    return lambda rows: np.asarray(reencoded.encode(rows, QUESTIONS[0]))


def make_average_way(model: InBedder) -> Encode:
    """Make an encoder by the mean state of the answer."""
    average = model.replace(pooling="avg-gen")
    return lambda rows: average.encode(rows, QUESTIONS[0])


def list_ways(model: InBedder, base: Path, folder: Path, device: str) -> dict[str, tuple[Callable[[], Encode], float]]:
    """List what is measured: the function that makes a way, and which share of the texts the way gets."""
    return {
        "inbedder, 1st-gen, batches of 256": (lambda: lambda rows: model.encode(rows, QUESTIONS[0], batch_size=256), 1),
        "inbedder, 1st-gen, batches of 32": (lambda: lambda rows: model.encode(rows, QUESTIONS[0]), 1),
        "sentence-transformers, last token, batches of 32": (lambda: make_sentence_transformers_way(model, folder, device), 1),
        "paper's way, batches of 32": (lambda: lambda rows: encode_as_in_the_paper(model, rows, 32), 0.25),
        "inbedder, avg-gen, batches of 32": (lambda: make_average_way(model), 0.5),
        "inbedder, re-enc, 10 answers, batches of 32": (lambda: make_reencoding_way(model, base), 0.125),
        "inbedder, 1st-gen of 10 questions together": (lambda: lambda rows: model.encode_many(rows, QUESTIONS)[0], 0.25),
    }


def measure_way(make_way: Callable[[], Encode], rows: list[str], device: str, max_seconds: float) -> tuple[dict[str, Any], Any]:
    """Measure one way; returns its numbers and its vectors."""
    with measure_memory(device) as memory:
        encode = make_way()
        seconds, vectors = time_rounds(lambda: encode(rows), max_seconds)
    rate = len(rows) / compute_median(seconds)
    numbers = {"texts": len(rows), "texts per second": round(rate, 1), "seconds": [round(each, 3) for each in seconds], **memory}
    return numbers, np.asarray(vectors)


def measure_shape(shape: Any, rows: list[str], base: Path, device: str, max_seconds: float, record: Record) -> None:
    """Measure every way on one shape, and record after each; a way that fails is recorded with its error."""
    tokenizer = load_tokenizer()
    start = time.perf_counter()
    model = build_model(fill_config(shape, tokenizer), tokenizer, device)
    backbone: Any = model.backbone
    parameters = sum(tensor.numel() for name, tensor in backbone.body.named_parameters() if "embed" not in name)
    lengths = [len(prompt.ids) for prompt in model.tokenizer(rows, [QUESTIONS[0]] * len(rows))]
    results: dict[str, Any] = {
        "parameters without embeddings": parameters,
        "seconds to build": _round(time.perf_counter() - start),
    }
    card = torch.cuda.get_device_name(0) if device == "cuda" else "cpu"
    peak = next((peak for name, peak in PEAK.items() if name in card), None)
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for name, (make_way, share) in list_ways(model, base, Path(folder), device).items():
            count = max(2, int(share * len(rows)))
            try:
                way, vectors = measure_way(make_way, rows[:count], device, max_seconds)
            except Exception as error:  # the other ways are still worth measuring
                results[name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
                record(results)
                continue
            way["prompt tokens per second"] = round(way["texts per second"] * statistics.mean(lengths[:count]))
            if "re-enc" not in name and "questions" not in name:
                speed = 2 * parameters * way["prompt tokens per second"] / 1e12
                way |= {"TFLOP/s of the prompts": _round(speed)} | ({"MFU": round(speed / peak, 3)} if peak else {})
            first = vectors if first is None else first
            if "avg-gen" not in name and "re-enc" not in name:
                way["smallest cosine to the first row"] = round(compare_vectors(vectors, first), 4)
            results[name] = way
            record(results)


def _round(number: float) -> float:
    return round(number, 1)


def measure_stage(device: str, tiny: bool, record: Record) -> None:
    """Measure decoders of random weights, the paper's sizes one after another."""
    vllm = "installed" if find_spec("vllm") else "not measured: not installed, and its wheel is too large to carry"
    record("vLLM", vllm)
    with tempfile.TemporaryDirectory() as temporary:
        base, _ = find_base(CARRIED, Path(temporary))
        for name, shape in (TINY_SHAPES if tiny else SHAPES).items():
            rows = texts(8, 2, 20) if tiny else texts(1024, 8, 200)
            max_seconds = 0 if tiny else MAX_SECONDS
            measure_shape(shape, rows, base, device, max_seconds, lambda results, name=name: record(name, results))
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
