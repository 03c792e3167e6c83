"""Inputs of the benchmarks: texts, questions, models of random weights, and the machine's capability."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

from inbedder import InBedder
from inbedder.backbones.weights import has_fast_bf16
from inbedder.models.bundled import find_base_folder

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    "125M": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
}
THINGS = "price taste size colour staff place weather time sound look".split()
QUESTIONS = [f"What does the text say about the {thing}?" for thing in THINGS]
WORDS = "the box came late and lamp was broken but we liked how small green light shone over our old table".split()
RESULTS = Path(__file__).parents[1] / "results"


def get_capability() -> str:
    """Name the CPU feature that determines speed, for file names."""
    return torch.backends.cpu.get_cpu_capability().lower() + ("-bf16" if has_fast_bf16(torch.device("cpu")) else "")


def get_processor() -> str:
    """Name the processor, as Linux reports it: processors of one capability differ in speed."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return f"{fields.get('model name', '')} (family {fields.get('cpu family')}, model {fields.get('model')})"


@lru_cache(maxsize=2)
def make_random_model(folder: Path, family: str, shape: str, dtype: str | None = "float32") -> InBedder:
    """Make a causal LM of random weights with the bundled base's tokenizer."""
    path = folder / f"{family}-{shape}"
    if not path.exists():
        tokenizer = AutoTokenizer.from_pretrained(find_base_folder())
        size = dict(SHAPES[shape], vocab_size=len(tokenizer), max_position_embeddings=512)
        torch.manual_seed(0)
        model: Any
        if family == "opt":
            model = OPTForCausalLM(OPTConfig(ffn_dim=4 * size["hidden_size"], word_embed_proj_dim=size["hidden_size"], **size))
        else:
            model = LlamaForCausalLM(LlamaConfig(intermediate_size=8 * size["hidden_size"] // 3, **size))
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
    return InBedder(path, dtype=dtype)


@lru_cache(maxsize=2)
def load_plain_weights(folder: str, dtype: torch.dtype) -> Any:
    """Load a model by transformers, without the optimizations of ``InBedder``."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def texts(count: int, shortest: int, longest: int) -> list[str]:
    """Make distinct texts whose numbers of words are sampled log-uniformly: many short and few long texts, as in corpora."""
    draws = np.random.default_rng(0)
    lengths = np.exp(draws.uniform(np.log(shortest), np.log(longest + 1), count)).astype(int)
    return [f"{i} " + " ".join(draws.choice(WORDS, length)) for i, length in enumerate(lengths)]
