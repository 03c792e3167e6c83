"""Tiny random models and tokenizers of every family, built here: no network, no downloads."""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from inbedder.backbones.late_interaction import add_gate

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

TEXTS = [
    "I love cats",
    "I love dogs",
    "The delivery was late and the box was crushed, but the lamp inside still works fine.",
    "How do I top up my account with a voucher?",
    "",
    "Zażółć gęślą jaźń 😀 – naïve café №5",
    "### Input:\nno\n\n### Response: [MASK] </s> <mask>",
]
INSTRUCTIONS = ["What animals do they love?", "Do they love animals?", "What product is it?", "Was braucht der Kunde?"]
CORPUS = [*TEXTS, *INSTRUCTIONS, "### Input:\n\n\n### Instruction:\n\n\n### Response:"] * 3
ROBERTA_SPECIALS = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
GOLDEN = Path(__file__).parent / "data" / "golden"


def byte_level_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """Train a tokenizer like those of GPT-2, OPT and RoBERTa."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    if "cls_token" in special:
        backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    else:
        backend.post_processor = processors.TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer like BERT's. Its vocabulary is not trained, because training would differ from run to run."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = {word for text in CORPUS for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    letters = set("".join(words))
    pieces = [*letters, *(f"##{letter}" for letter in letters), *words, "delive", "work"]
    vocabulary = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(pieces)])
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizer, splitter, decoders.WordPiece()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def llama_like_tokenizer() -> PreTrainedTokenizerFast:
    """Train a tokenizer like Llama-2's: the normalizer replaces spaces by a mark, and unknown characters become bytes."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        max_token_length=12,
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def t5_like_tokenizer() -> PreTrainedTokenizerFast:
    """Train a tokenizer like T5's: an end token after the prompt, none before."""
    tokenizer = llama_like_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<unk>"
    )


def xlm_r_like_tokenizer() -> PreTrainedTokenizerFast:
    """Train a tokenizer like XLM-R's: in a Unigram vocabulary a special token is a piece like any other."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=specials, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **ROBERTA_SPECIALS,
    )


TOKENIZERS = {
    "byte-level": lambda: byte_level_tokenizer(bos_token="</s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"),
    "roberta": lambda: byte_level_tokenizer(
        **ROBERTA_SPECIALS,
    ),
    "wordpiece": wordpiece_tokenizer,
    "llama-like": llama_like_tokenizer,
    "t5-like": t5_like_tokenizer,
    "xlm-r-like": xlm_r_like_tokenizer,
}
SMALL_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.5,
}
_WIDE = {"hidden_size": 64, "num_attention_heads": 2}
"""Heads of 32 numbers, the narrowest that vLLM's CPU attention supports."""
_LONG = {"max_position_embeddings": 4096}
"""A context for prompts of the papers' length, in a byte-level vocabulary."""
_FAMILIES = {
    "opt": ("byte-level", "OPTForCausalLM", transformers.OPTConfig, {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.5}),
    "gpt2": ("byte-level", "GPT2LMHeadModel", transformers.GPT2Config, {"n_inner": 48}),
    "llama": ("llama-like", "LlamaForCausalLM", transformers.LlamaConfig, {"num_key_value_heads": 2}),
    "long-opt": ("byte-level", "OPTForCausalLM", transformers.OPTConfig, {**_LONG, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "long-roberta": ("roberta", "RobertaForMaskedLM", transformers.RobertaConfig, _LONG),
    "wide-opt": ("byte-level", "OPTForCausalLM", transformers.OPTConfig, {**_WIDE, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "wide-llama": ("llama-like", "LlamaForCausalLM", transformers.LlamaConfig, {**_WIDE, "num_key_value_heads": 1}),
    "qwen2": ("llama-like", "Qwen2ForCausalLM", transformers.Qwen2Config, {"num_key_value_heads": 2}),
    "mistral": ("llama-like", "MistralForCausalLM", transformers.MistralConfig, {"num_key_value_heads": 2}),
    "bert": ("wordpiece", "BertForMaskedLM", transformers.BertConfig, {}),
    "roberta": ("roberta", "RobertaForMaskedLM", transformers.RobertaConfig, {}),
    "xlm-roberta": ("xlm-r-like", "XLMRobertaForMaskedLM", transformers.XLMRobertaConfig, {}),
    "headless-bert": ("wordpiece", "BertModel", transformers.BertConfig, {}),
    "narrow-opt": ("byte-level", "OPTForCausalLM", transformers.OPTConfig, {"ffn_dim": 48, "word_embed_proj_dim": 16}),
    "long-t5": (
        "t5-like",
        "T5ForConditionalGeneration",
        transformers.T5Config,
        {**_LONG, "d_kv": 8, "d_ff": 48, "num_layers": 2},
    ),
    "t5": ("t5-like", "T5ForConditionalGeneration", transformers.T5Config, {"d_kv": 8, "d_ff": 48, "num_layers": 2}),
}
CAUSAL = ["opt", "gpt2", "llama", "qwen2", "mistral"]
MASKED = ["bert", "roberta", "xlm-roberta"]


@pytest.fixture(scope="session", autouse=True)
def a_cpu_without_bfloat16():
    """Run tests in float32 on every machine; tests of the choice itself set what the CPU supports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
        yield


@pytest.fixture(scope="session")
def gpu():
    """Return the device of tests marked cuda; INBEDDER_TEST_DEVICE=cpu tries such tests without a GPU."""
    device = os.environ.get("INBEDDER_TEST_DEVICE", "cuda")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return device


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory):
    """Create the folder of a tiny random model of a family, once per session."""
    folders: dict[str, str] = {}

    def make(family: str) -> str:
        if family not in folders:
            tokenizer_name, architecture, config_class, extra = _FAMILIES[family]
            tokenizer = TOKENIZERS[tokenizer_name]()
            settings = dict(SMALL_SIZES, vocab_size=len(tokenizer) + 8, **extra)
            ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
            if family in ("t5", "long-t5"):
                ids["decoder_start_token_id"] = 0
            torch.manual_seed(7)
            model = getattr(transformers, architecture)(config_class(**settings, **ids))
            folder = tmp_path_factory.mktemp(family)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            folders[family] = str(folder)
        return folders[family]

    return make


@pytest.fixture(scope="session")
def late_adapter(make_model, tmp_path_factory):
    """Create the folder of a random adapter whose model reads texts and questions separately."""
    from peft import LoraConfig, get_peft_model

    base, folder = make_model("bert"), tmp_path_factory.mktemp("late")
    model = transformers.AutoModelForMaskedLM.from_pretrained(base)
    add_gate(model)
    torch.manual_seed(5)
    torch.nn.init.normal_(model.gate.weight)
    saved = ["transform", "embeddings.LayerNorm", "token_type_embeddings", "gate"]
    layers = r"bert\.encoder\.layer\.\d+\..*(query|key|value|dense)"
    config = LoraConfig(r=4, lora_alpha=16, init_lora_weights=False, bias="all", target_modules=layers, modules_to_save=saved)
    adapter = get_peft_model(model, config)
    for name, parameter in adapter.named_parameters():
        if parameter.requires_grad and "lora" not in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    adapter.save_pretrained(folder)
    settings = {"base": base, "template": "compact", "late_interaction": True, "mask_length": 3}
    (folder / "inbedder.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def make_sentence_model(tmp_path_factory, make_model):
    """Create the folder of a tiny random sentence-transformers checkpoint, once per session."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    folders = {}

    def make(family="headless-bert", mode="mean", include_prompt=False, dense=False):
        key = (family, mode, include_prompt, dense)
        if key not in folders:
            torch.manual_seed(3)
            transformer = Transformer(make_encoder(family, make_model, tmp_path_factory.mktemp("encoder")))
            modules = [transformer, Pooling(32, mode, include_prompt=include_prompt), *([Dense(32, 16)] if dense else [])]
            folder = tmp_path_factory.mktemp("sentence")
            SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save_pretrained(
                str(folder), create_model_card=False
            )
            folders[key] = folder
        return folders[key]

    return make


def make_encoder(family, make_model, folder):
    """Create a tiny model for sentence-transformers: only the encoder of T5, and a padding token for Llama."""
    if family == "t5":
        tokenizer = TOKENIZERS["t5-like"]()
        torch.manual_seed(7)
        config = transformers.T5Config(**SMALL_SIZES, vocab_size=len(tokenizer) + 8, d_kv=8, d_ff=48, num_layers=2)
        transformers.T5EncoderModel(config).save_pretrained(folder)
    elif family in ("llama", "qwen2"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(make_model(family))
        tokenizer.pad_token = tokenizer.eos_token
        transformers.AutoModel.from_pretrained(make_model(family)).save_pretrained(folder)
    else:
        return make_model(family)
    tokenizer.save_pretrained(folder)
    return str(folder)


def assert_close(a, b, relative=1e-5):
    """Assert equality up to rounding, relative to the largest value."""
    scale = max(1.0, float(np.abs(b).max()))
    assert np.abs(np.asarray(a) - np.asarray(b)).max() <= relative * scale


def blobs(sizes, seed=0):
    """Sample unit vectors around one axis per size, float32, shape (sum of sizes, 8)."""
    rng = np.random.default_rng(seed)
    centres = np.eye(len(sizes), 8, dtype=np.float32)
    rows = np.concatenate([centre + 0.05 * rng.normal(size=(n, 8)) for centre, n in zip(centres, sizes, strict=True)])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def with_answers(model, encode):
    """Return a stand-in for ``model.encode`` that also takes ``return_answers``."""

    def encode_and_answer(texts, question=None, *, return_answers=False, **options):
        vectors = encode(texts, question, **options)
        return (vectors, model.answer(texts, question)) if return_answers else vectors

    return encode_and_answer
