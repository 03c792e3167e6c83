"""A text's vector does not depend on the texts beside it, in any family; what a class cannot compute is refused by name."""

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.backbones import padding_check
from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.padding_check import PADDING_SAFE_TYPES, check_reading, is_padding_safe
from inbedder.backbones.revision import hash_settings
from inbedder.backbones.seq2seq import Seq2SeqBackbone
from inbedder.errors import InputError, ModelError
from tests.backbones.unusual_models import build_safe_model, make_unusual_model
from tests.conftest import TEXTS

LONG = "The delivery was late and the box was crushed, but the lamp inside still works fine. " * 3
BACKBONES = {"causal": CausalBackbone, "masked": MaskedBackbone, "seq2seq": Seq2SeqBackbone}
PADDING_READERS = ["fnet", "convbert", "big_bird", "recurrent_gemma", "rwkv"]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Return a function that loads a tiny model of an unusual family, once per module."""
    models = {}

    def load_model(model_type):
        if model_type not in models:
            models[model_type] = InBedder(make_unusual_model(model_type, tmp_path_factory.mktemp(model_type)))
        return models[model_type]

    return load_model


@pytest.mark.parametrize("model_type", PADDING_READERS)
def test_a_family_that_reads_padding_reads_one_length_at_a_time(load, model_type):
    model = load(model_type)
    assert model.backbone.reads_padding
    texts = [*TEXTS, LONG, TEXTS[0]]
    for pooling in model.backbone.poolings:
        pooled = model.replace(pooling=pooling)
        vectors = pooled.encode(texts, "What?")
        for text, vector in zip(texts, vectors, strict=True):
            single_vector = pooled.encode([text], "What?")[0]
            assert np.abs(single_vector - vector).max() <= 1e-4 * np.abs(single_vector).max()
    answers = model.answer(texts, "What?")
    assert answers == [model.answer([text], "What?")[0] for text in texts]
    assert len(set(answers)) > 1


def test_a_model_that_reads_padding_shares_no_text_between_questions(load):
    model = load("rwkv")
    vectors = model.encode_many(["I love cats", LONG], ["What?", "Which animals?"])
    assert np.allclose(vectors[1, 0], model.encode("I love cats", "Which animals?"), atol=1e-4)
    with pytest.raises(InputError, match="the model reads padding"):
        InBedder(model.options.model.model, text_memory="1M")


@pytest.mark.parametrize("model_type", ["rwkv", "recurrent_gemma", "mamba", "openai-gpt", "xlnet"])
@pytest.mark.parametrize("pooling", ["avg-gen", "last-gen", "avg-all"])
def test_a_pooling_that_the_class_cannot_compute_is_refused_by_name(load, model_type, pooling):
    name = load(model_type).options.model.model
    with pytest.raises(
        ModelError, match=rf"'{name}', a {model_type} model, has no pooling '{pooling}'. Choose .*: 1st-gen, avg-ppt"
    ):
        InBedder(name, pooling=pooling)
    with pytest.raises(ModelError, match=f"a {model_type} model, has no pooling"):
        load(model_type).replace(pooling=pooling)


@pytest.mark.parametrize("model_type", ["esm", "ibert", "ctrl", "mamba", "openai-gpt", "xlnet"])
def test_vectors_and_answers_of_other_families_work(load, model_type):
    model = load(model_type)
    for pooling in model.backbone.poolings:
        vectors = model.replace(pooling=pooling).encode([*TEXTS, LONG], "What?")
        assert np.allclose(vectors[0], model.replace(pooling=pooling).encode(TEXTS[0], "What?"), atol=1e-4)
    assert model.answer(["I love cats", LONG], "What?")[:1] == model.answer(["I love cats"], "What?")


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("nystromformer", "a nystromformer model, cannot be read"),
        ("reformer", "a reformer model, returns different vectors on each call"),
    ],
)
def test_a_family_without_a_usable_pooling_is_refused_by_name(load, model_type, message):
    with pytest.raises(ModelError, match=message):
        load(model_type)


@pytest.mark.parametrize(("model_type", "kind"), [(name, kind) for kind, names in PADDING_SAFE_TYPES.items() for name in names])
def test_families_that_are_not_checked_would_pass(monkeypatch, model_type, kind):
    backbone = BACKBONES[kind](*build_safe_model(model_type, kind))
    assert is_padding_safe(backbone.model, kind)
    poolings = backbone.poolings
    with torch.no_grad():
        for parameter in backbone.model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr(padding_check, "is_padding_safe", lambda *_: False)
    check_reading(backbone, "tiny")
    assert backbone.poolings == poolings
    assert backbone.answers
    assert not backbone.reads_padding


def test_a_known_family_is_loaded_without_a_pass(make_model, monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a prompt was read while the model was loaded")

    for method in ("embed", "answer"):
        monkeypatch.setattr(MaskedBackbone, method, refuse)
    assert not InBedder(make_model("bert")).backbone.reads_padding


def test_the_code_of_a_repository_is_checked_whatever_its_type(make_model):
    model = InBedder(make_model("bert")).backbone.model
    own_class = type("BertForMaskedLM", (type(model),), {"__module__": "transformers_modules.someone"})
    assert is_padding_safe(model, "masked")
    assert not is_padding_safe(own_class(model.config), "masked")
    assert not is_padding_safe(model, "causal")


def test_cached_vectors_of_padded_batches_are_not_used_again(load):
    backbone = load("fnet").backbone
    settings = hash_settings(backbone)
    backbone.reads_padding = False
    try:
        assert hash_settings(backbone) != settings
    finally:
        backbone.reads_padding = True


def test_a_lack_of_memory_is_no_reason_to_drop_a_pooling(load, monkeypatch):
    def refuse(*_args, **_options):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(MaskedBackbone, "embed", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        check_reading(load("fnet").backbone, "fnet")
