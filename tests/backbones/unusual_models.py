"""Tiny random models of unusual families, for tests of kinds, padding and poolings."""

import torch
import transformers
from transformers import AutoConfig

from tests.conftest import TOKENIZERS

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.5,
}
_XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "init_std": 0.5, "embed_init_std": 0.5, "pad_index": 1, "bos_index": 0}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
_GRIFFIN = {"num_key_value_heads": 1, "head_dim": 8, "lru_width": 32, "num_hidden_layers": 3}
UNUSUAL = {
    "xlm": ("XLMWithLMHeadModel", "roberta", _XLM),
    "flaubert": ("FlaubertWithLMHeadModel", "roberta", _XLM),
    "fnet": ("FNetForMaskedLM", "roberta", {}),
    "convbert": ("ConvBertForMaskedLM", "roberta", {"embedding_size": 32, "conv_kernel_size": 3}),
    "big_bird": ("BigBirdForMaskedLM", "roberta", {"block_size": 4, "num_random_blocks": 1}),
    "recurrent_gemma": ("RecurrentGemmaForCausalLM", "llama-like", _GRIFFIN),
    "rwkv": ("RwkvForCausalLM", "llama-like", {"attention_hidden_size": 32, "context_length": 256}),
    "mamba": ("MambaForCausalLM", "llama-like", {"state_size": 8}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", "llama-like", _GPT),
    "ctrl": ("CTRLLMHeadModel", "llama-like", {**_GPT, "dff": 48}),
}
"""For each model type its class, tokenizer and sizes."""


def make_unusual_model(model_type, folder):
    """Save a tiny random model of an unusual family in an empty folder, and return the folder's name."""
    architecture, tokenizer_name, sizes = UNUSUAL[model_type]
    tokenizer = TOKENIZERS[tokenizer_name]()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, **{**_SIZES, **sizes}, vocab_size=len(tokenizer) + 8, **ids)
    getattr(transformers, architecture)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
