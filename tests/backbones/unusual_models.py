"""Tiny random models of unusual families, for tests of kinds, padding and poolings."""

import torch
import transformers
from transformers import AutoConfig
from transformers.models.auto import modeling_auto

from tests.conftest import SMALL_SIZES, TOKENIZERS

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
    "xlnet": ("XLNetLMHeadModel", "llama-like", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "esm": ("EsmForMaskedLM", "roberta", {}),
    "ibert": ("IBertForMaskedLM", "roberta", {}),
    "nystromformer": ("NystromformerForMaskedLM", "roberta", {"num_landmarks": 4, "segment_means_seq_len": 64}),
    "reformer": (
        "ReformerForMaskedLM",
        "roberta",
        {
            "attn_layers": ["local", "lsh"],
            "axial_pos_shape": [16, 16],
            "axial_pos_embds_dim": [16, 16],
            "attention_head_size": 8,
            "feed_forward_size": 48,
            "local_attn_chunk_length": 8,
            "lsh_attn_chunk_length": 8,
            "num_buckets": 4,
            "is_decoder": False,
        },
    ),
}
"""For each model type its class, tokenizer and sizes."""
_BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "init_std": 0.5}
_BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_T5 = {"d_kv": 8, "d_ff": 48, "num_layers": 2}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
SAFE_SIZES = {
    "albert": {"embedding_size": 16},
    "bart": _BART,
    "bloom": {"n_layer": 2, "n_head": 4},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 32},
    "gpt2": _GPT,
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 8},
    "gptj": {**_GPT, "rotary_dim": 4},
    "mbart": _BART,
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 256},
    "mt5": _T5,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "pegasus": _BART,
    "stablelm": {"num_key_value_heads": 2},
    "t5": _T5,
    "umt5": _T5,
    **{name: _GROUPED for name in "gemma gemma2 gemma3_text granite llama mistral phi3 qwen2 qwen3 smollm3 starcoder2".split()},
}
"""Sizes of model types whose configurations have their own names for them."""


def build_safe_model(model_type, kind):
    """Build a tiny random model of a type of ``PADDING_SAFE_TYPES`` and its tokenizer."""
    mappings = {
        "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }
    tokenizer = TOKENIZERS[{"causal": "llama-like", "masked": "roberta", "seq2seq": "t5-like"}[kind]]()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    sizes = {**SMALL_SIZES, **SAFE_SIZES.get(model_type, {}), **({"decoder_start_token_id": 0} if kind == "seq2seq" else {})}
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, **sizes, vocab_size=len(tokenizer) + 8, **ids)
    return getattr(transformers, mappings[kind][model_type])(config).eval(), tokenizer


def make_unusual_model(model_type, folder):
    """Save a tiny random model of an unusual family in an empty folder, and return the folder's name."""
    architecture, tokenizer_name, sizes = UNUSUAL[model_type]
    tokenizer = TOKENIZERS[tokenizer_name]()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    torch.manual_seed(7)
    sizes = {
        name: size
        for name, size in {**SMALL_SIZES, **sizes}.items()
        if model_type != "xlnet" or name != "max_position_embeddings"
    }
    config = AutoConfig.for_model(model_type, **sizes, vocab_size=len(tokenizer) + 8, **ids)
    getattr(transformers, architecture)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


_VISION = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 28, "patch_size": 14}
_VISION |= {"hidden_size": 16, "depth": 1, "num_heads": 2, "mlp_ratio": 2, "out_hidden_size": 32, "deepstack_visual_indexes": [0]}
VISION_PARTS = {
    "gemma3": _VISION,
    "llava": {**_VISION, "model_type": "clip_vision_model"},
    "qwen2_vl": {**_VISION, "embed_dim": 16, "hidden_size": 32},
    "qwen2_5_vl": _VISION,
    "qwen3_vl": _VISION,
}
"""Sizes of the part that sees, for model types that read texts and images."""


def make_vision_model(model_type, folder):
    """Save a tiny random model that reads texts and images in an empty folder, and return the folder's name."""
    tokenizer = TOKENIZERS["llama-like"]()
    last = len(tokenizer) + 7
    names = ("image_token", "video_token", "vision_start_token", "vision_end_token")
    ids = {"image_token_index": last, "boi_token_index": last, "eoi_token_index": last, **{f"{name}_id": last for name in names}}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    text_part = {**SMALL_SIZES, **_GROUPED, "vocab_size": last + 1, "bos_token_id": tokenizer.bos_token_id}
    text_part |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    text_part |= {"model_type": "llama"} if model_type == "llava" else {"rope_parameters": rope} if "qwen" in model_type else {}
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, text_config=text_part, vision_config=VISION_PARTS[model_type], **ids)
    architecture = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[model_type]
    getattr(transformers, architecture)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
