import numpy as np
import pytest
import torch

from inbedder.backbones import page_weights
from inbedder.backbones.families import load_model
from inbedder.backbones.hub import open_model
from inbedder.backbones.page_weights import make_page_weights
from inbedder.options import ModelOptions
from tests.backbones.page_tensors import read_tensors


@pytest.fixture(scope="module")
def models(late_adapter):
    options = ModelOptions(model=str(late_adapter), dtype="float32")
    loaded = load_model(open_model(options.model), options)
    return options, loaded.text_reader.model.base_model, loaded.model


def test_rounded_weights_are_within_half_a_level(models):
    options, text_body, _ = models
    tensors = read_tensors(*make_page_weights(options, [5, 3, 7], 6))
    words = text_body.embeddings.word_embeddings.weight.detach().numpy()[[5, 3, 7]]
    assert tensors["words"].shape == words.shape
    assert len(tensors["positions"]) == 6
    assert (np.abs(tensors["words"] - words) <= np.abs(words).max(1, keepdims=True) / page_weights.LEVELS / 1.99).all()
    layer = text_body.get_submodule("encoder.layer.0.intermediate.dense").weight.detach().numpy()
    limit = np.abs(layer).max(1, keepdims=True) / page_weights.FINE_LEVELS / 1.99
    assert (np.abs(tensors["0.expand"] - layer) <= limit).all()


def test_base_and_factors_give_the_adapted_weights(models, monkeypatch):
    options, _, model = models
    monkeypatch.setattr(page_weights, "LEVELS", 127)
    monkeypatch.setattr(page_weights, "FINE_LEVELS", 127)
    tensors = read_tensors(*make_page_weights(options, [1], 6))
    for part in ("query", "key", "value", "mix", "expand", "contract"):
        merged = tensors[f"1.{part}"] + tensors[f"1.{part}.up"].T @ tensors[f"1.{part}.down"]
        adapted = model.get_submodule(f"bert.encoder.layer.1.{page_weights.PARTS[part]}")
        assert tensors[f"1.{part}.up"].shape[0] == 4  # the adapter's rank
        assert np.abs(merged - adapted.weight.detach().numpy()).max() < 0.03 * adapted.weight.abs().max()
        torch.testing.assert_close(torch.from_numpy(tensors[f"pair.1.{part}.bias"][0]), adapted.bias.detach())


def test_weights_are_the_same_bytes_each_time(models):
    assert make_page_weights(models[0], [1, 2], 6) == make_page_weights(models[0], [1, 2], 6)
