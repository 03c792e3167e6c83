"""Tiny checkpoints in the form of sentence-transformers, saved by itself."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoModel, AutoTokenizer

from tests.conftest import _SMALL, TOKENIZERS


@pytest.fixture(scope="session")
def make_sentence_model(tmp_path_factory, make_model):
    """Folder of a tiny random checkpoint that sentence-transformers saved, made once."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    made = {}

    def make(family="headless-bert", mode="mean", include_prompt=False, dense=False):
        key = (family, mode, include_prompt, dense)
        if key not in made:
            torch.manual_seed(3)
            transformer = Transformer(encoder(family, make_model, tmp_path_factory.mktemp("encoder")))
            modules = [transformer, Pooling(32, mode, include_prompt=include_prompt), *([Dense(32, 16)] if dense else [])]
            folder = tmp_path_factory.mktemp("sentence")
            SentenceTransformer(modules=[*modules, Normalize()], device="cpu").save_pretrained(
                str(folder), create_model_card=False
            )
            made[key] = folder
        return made[key]

    return make


def encoder(family, make_model, folder):
    """Folder of a tiny model as sentence-transformers takes it: T5's encoder alone, and a padding token for Llama."""
    if family == "t5":
        tokenizer = TOKENIZERS["t5-like"]()
        torch.manual_seed(7)
        config = transformers.T5Config(**_SMALL, vocab_size=len(tokenizer) + 8, d_kv=8, d_ff=48, num_layers=2)
        transformers.T5EncoderModel(config).save_pretrained(folder)
    elif family in ("llama", "qwen2"):
        tokenizer = AutoTokenizer.from_pretrained(make_model(family))
        tokenizer.pad_token = tokenizer.eos_token
        AutoModel.from_pretrained(make_model(family)).save_pretrained(folder)
    else:
        return make_model(family)
    tokenizer.save_pretrained(folder)
    return str(folder)
