"""A tiny random Llama as a GGUF file."""

import json

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.conftest import byte_level_tokenizer

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
SIZES |= {"initializer_range": 0.5, "tie_word_embeddings": True}
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleave_rotary(weight, heads):
    """Reorder rows into the rotary dimensions of llama.cpp."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """Write a tiny GGUF file; return it and the model whose weights it holds."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return path, write_gguf(path)


def write_gguf(path, word_types=(), output_noise=0.0):
    """Write a tiny GGUF file, with input and output matrix in two types of blocks if given; return its model."""
    tokenizer = byte_level_tokenizer(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    torch.manual_seed(3)
    config = LlamaConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=256)
    model = LlamaForCausalLM(config).to(torch.bfloat16).float().eval()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(len(tokenizer))
    backend = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(backend["vocab"], key=backend["vocab"].get))
    writer.add_token_types([3 if number < 5 else 1 for number in range(len(tokenizer))])
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in backend["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_unk_token_id(tokenizer.unk_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    words = state["model.embed_tokens.weight"].astype(np.float32)
    noise = output_noise * np.random.default_rng(0).normal(size=words.shape).astype(np.float32)
    for name, matrix, kind in zip(("token_embd.weight", "output.weight"), (words, words + noise), word_types, strict=False):
        writer.add_tensor(name, gguf.quants.quantize(matrix, kind), raw_dtype=kind)
    if not word_types:
        writer.add_tensor("token_embd.weight", words)
    writer.add_tensor("output_norm.weight", state["model.norm.weight"].astype(np.float32))
    for layer in range(2):
        for hf_name, gguf_name in NAMES.items():
            weight = state[f"model.layers.{layer}.{hf_name}.weight"].astype(np.float32)
            if gguf_name in ("attn_q", "attn_k"):
                weight = interleave_rotary(weight, 2 if gguf_name == "attn_q" else 1)
            writer.add_tensor(f"blk.{layer}.{gguf_name}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Set INBEDDER_HOME to a folder that does not exist yet."""
    monkeypatch.setenv("INBEDDER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
