"""Tests of quantization by bitsandbytes."""

import pytest

from inbedder import InBedder
from inbedder.backbones import quantization as module
from inbedder.errors import MissingExtraError, ModelError
from tests.conftest import GOLDEN, TEXTS


def test_without_bitsandbytes_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"needs bitsandbytes\. Install it with: pip install '\.\[quantization\]'"):
        InBedder(GOLDEN / "opt", quantization="nf4")


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
@pytest.mark.parametrize("family", ["opt", "llama", "roberta"])
def test_quantized_models_stay_close_to_the_full_ones(family, quantization):
    pytest.importorskip("bitsandbytes")
    full = InBedder(GOLDEN / family).encode(TEXTS, "What?", normalize_embeddings=True)
    small = InBedder(GOLDEN / family, quantization=quantization).encode(TEXTS, "What?", normalize_embeddings=True)
    assert (full * small).sum(1).min() > (0.99 if quantization == "int8" else 0.9)


def test_layers_that_kernels_do_not_take_are_refused_at_loading(monkeypatch):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    forward = bitsandbytes.nn.Linear4bit.forward

    def refuse_wide_outputs(layer, states):
        if layer.out_features > layer.in_features:
            raise RuntimeError("shape '[32, 0]' is invalid for input of size 16")
        return forward(layer, states)

    monkeypatch.setattr(bitsandbytes.nn.Linear4bit, "forward", refuse_wide_outputs)
    with pytest.raises(ModelError, match=r"layers of .*opt from 64 to \d+ values here \(shape .*Leave out quantization"):
        InBedder(GOLDEN / "opt", quantization="nf4")
