"""Vectors equal those of the paper authors' code on the same weights.

That code (zhang-yu-wei/InBedder at commit e7747148, ``lm_encoders_hf/``) computed golden.npz. golden.json holds its answers and,
under "contrastive", the tokens that its ``analyze_propose_results.py`` decodes from cluster means minus the mean of all texts.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from inbedder import InBedder
from inbedder.grouping.describe.explain import compute_mean_differences
from tests.conftest import GOLDEN

VECTORS = np.load(GOLDEN / "golden.npz", allow_pickle=False)
GOLDEN_TEXTS = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))
T5 = GOLDEN.parent / "tiny" / "t5"


def make_varied_t5(folder):
    """Copy the tiny T5 with weights four times as large and two tokens swapped, so that answers vary and one ends early."""
    folder.mkdir(exist_ok=True)
    for file in T5.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(T5 / "model.safetensors")
    for name, weight in weights.items():
        if name == "shared.weight":
            weight[[2, 598]] = weight[[598, 2]]
        elif "layer_norm" not in name:
            weight *= 4
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def golden_model(tmp_path_factory):
    """Return a function from a kind to the folder of its golden model."""
    t5 = make_varied_t5(tmp_path_factory.mktemp("t5"))
    return lambda kind: t5 if kind == "t5" else GOLDEN / kind


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("key", VECTORS.files)
def test_vectors_equal_those_of_the_authors_code(golden_model, key, batch_size):
    kind, pooling, layer = key.split("__")
    model = InBedder(golden_model(kind), pooling=pooling, layer=int(layer.removeprefix("layer")), dtype="float32")
    vectors = model.encode(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"], batch_size=batch_size)
    np.testing.assert_allclose(vectors, VECTORS[key], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["opt", "llama", "t5"])
def test_greedy_answers_equal_those_of_the_authors_code(golden_model, kind):
    answers = InBedder(golden_model(kind)).answer(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"])
    assert answers == [answer.strip() for answer in GOLDEN_TEXTS[f"{kind}/answers"]]


def test_plain_masked_answers_equal_those_of_the_authors_code():
    """The authors tokenize prompt and mask tokens as one string, decode the argmax at each mask, and skip special tokens."""
    tokenizer = AutoTokenizer.from_pretrained(GOLDEN / "roberta")
    weights = AutoModelForMaskedLM.from_pretrained(GOLDEN / "roberta", dtype=torch.float32).eval()
    model = InBedder(GOLDEN / "roberta", dtype="float32", constrained_decoding=False)
    expected = []
    for text, instruction in zip(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"], strict=True):
        prompt = f"### Input:\n{text}\n\n### Instruction:\n{instruction}\n\n### Response:" + tokenizer.mask_token * 3
        inputs = tokenizer([prompt], truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            predicted = weights(**inputs).logits.argmax(-1)[inputs["input_ids"] == tokenizer.mask_token_id]
        expected.append(tokenizer.decode(predicted, skip_special_tokens=True).strip())
    assert model.answer(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"]) == expected
    constrained = model.replace(constrained_decoding=True)
    assert constrained.answer(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"]) != expected


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_words_of_cluster_means_equal_the_authors_contrastive_decoding(kind):
    model = InBedder(GOLDEN / kind, dtype="float32")
    vectors = model.encode(GOLDEN_TEXTS["texts"], GOLDEN_TEXTS["instructions"])
    differences = compute_mean_differences(vectors, np.array(GOLDEN_TEXTS["contrastive"]["labels"]))
    for number, tokens in enumerate(GOLDEN_TEXTS["contrastive"][kind]):
        decoded = [model.backbone.tokenizer.convert_tokens_to_string([token]).strip().lower() for token in tokens]
        words = list(dict.fromkeys(word for word in decoded if len(word) > 1 and word.isalnum()))
        assert len(words) > 8
        assert model.nearest_words(differences, top=40)[number][: len(words)] == words
