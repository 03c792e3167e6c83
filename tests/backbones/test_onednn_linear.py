from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from inbedder import InBedder
from inbedder.backbones import onednn_linear
from inbedder.backbones.onednn_linear import PrepackedLinear, can_prepack, prepack
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

pytestmark = pytest.mark.skipif(not can_prepack(torch.ones(2, 2)), reason="oneDNN computes in float32 on x86 alone")


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(24, 40).eval()


def states(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def computed_by_onednn(layer, inputs):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        layer(inputs)
    return any("mkldnn::_linear_pointwise" in event.key for event in profile.key_averages())


@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (3, 5, 24), (0, 24)])
def test_a_prepacked_layer_gives_what_torch_gives(linear, shape):
    with torch.inference_mode():
        inputs = states(*shape)
        torch.testing.assert_close(PrepackedLinear(linear)(inputs), linear(inputs))


def test_gelu_is_part_of_the_layer_with_and_without_gradients(linear):
    inputs, layer = states(7, 24), PrepackedLinear(linear, gelu=True)
    with torch.inference_mode():
        torch.testing.assert_close(layer(inputs), F.gelu(linear(inputs)))
    torch.testing.assert_close(layer(inputs), F.gelu(linear(inputs)))


def test_gradients_are_those_of_torch(linear):
    inputs = states(7, 24)
    PrepackedLinear(linear)(inputs).square().sum().backward()
    gradient, linear.weight.grad = linear.weight.grad, None
    linear(inputs).square().sum().backward()
    torch.testing.assert_close(gradient, linear.weight.grad)


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.weight.mul_(2),
        lambda layer: layer.to(torch.float16).to(torch.float32),
        lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight * 3)),
        lambda layer: layer.load_state_dict({"weight": torch.ones(40, 24), "bias": torch.ones(40)}),
        lambda layer: setattr(layer.weight, "data", layer.weight.data + 1),
    ],
)
@torch.no_grad()
def test_what_is_done_to_the_weights_later_counts(linear, change):
    inputs, layer = states(7, 24), PrepackedLinear(linear)
    change(layer)
    torch.testing.assert_close(layer(inputs), F.linear(inputs, layer.weight, layer.bias))


@torch.no_grad()
def test_a_layer_of_another_precision_is_torchs(linear):
    layer = PrepackedLinear(linear).to(torch.bfloat16)
    inputs = states(7, 24).bfloat16()
    torch.testing.assert_close(layer(inputs), F.linear(inputs, layer.weight, layer.bias))


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN computes in bfloat16 on some CPUs alone")
@pytest.mark.parametrize("gelu", [False, True])
@torch.no_grad()
def test_bfloat16_is_as_near_to_float32_as_torchs_own(linear, monkeypatch, gelu):
    inputs, activation = states(64, 24), F.gelu if gelu else lambda output: output
    exact = activation(linear(inputs))
    linear = linear.bfloat16()
    monkeypatch.setattr(onednn_linear, "has_fast_bf16", lambda _device: True)
    layer = PrepackedLinear(linear, gelu=gelu)
    assert computed_by_onednn(layer, inputs.bfloat16())
    packed_output, torch_output = layer(inputs.bfloat16()).float(), activation(linear(inputs.bfloat16())).float()
    assert (packed_output - exact).abs().mean() <= 1.1 * (torch_output - exact).abs().mean()


@torch.no_grad()
def test_a_copy_has_weights_of_its_own(linear):
    layer = PrepackedLinear(linear)
    layer_copy = deepcopy(layer)
    layer_copy.weight.mul_(2)
    inputs = states(7, 24)
    torch.testing.assert_close(layer(inputs), linear(inputs))
    torch.testing.assert_close(layer_copy(inputs), F.linear(inputs, 2 * linear.weight, linear.bias))


@torch.no_grad()
def test_onednn_computes_where_no_gradient_is_wanted(linear):
    layer = PrepackedLinear(linear)
    assert computed_by_onednn(layer, states(7, 24))
    layer.weight.add_(1)
    assert not computed_by_onednn(layer, states(7, 24))


@pytest.fixture
def fresh_probe():
    onednn_linear.has_operations.cache_clear()
    yield
    onednn_linear.has_operations.cache_clear()


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("_pack_weight", lambda weight, *_: torch.ops.mkldnn._no_such_operation(weight)),
        ("_apply_packed", lambda states, *_: torch.ops.mkldnn._linear_pointwise(states)),
        ("_apply_packed", lambda states, _packed, bias, _gelu: states.sum(1, keepdim=True) + bias),
    ],
    ids=["missing", "another signature", "another result"],
)
def test_torch_computes_without_the_private_operations(fresh_probe, make_model, monkeypatch, name, operation):
    model = make_model("bert")
    expected = InBedder(model, dtype="float32").encode(TEXTS, INSTRUCTIONS[0])
    onednn_linear.has_operations.cache_clear()
    monkeypatch.setattr(onednn_linear, name, operation)
    assert not can_prepack(torch.ones(2, 2))
    plain = InBedder(model, dtype="float32")
    assert not any(isinstance(module, PrepackedLinear) for module in plain.backbone.model.modules())
    assert_close(plain.encode(TEXTS, INSTRUCTIONS[0]), expected)


@pytest.mark.parametrize("family", ["bert", "roberta", "opt", "llama", "t5"])
def test_a_loaded_model_gives_the_vectors_of_torchs_own_layers(make_model, monkeypatch, family):
    name = make_model(family)
    fast = InBedder(name, dtype="float32")
    assert any(isinstance(module, PrepackedLinear) for module in fast.backbone.model.modules())
    monkeypatch.setattr("inbedder.backbones.families.prepack", lambda _model: None)
    plain = InBedder(name, dtype="float32")
    assert not any(isinstance(module, PrepackedLinear) for module in plain.backbone.model.modules())
    assert_close(fast.encode(TEXTS, INSTRUCTIONS[0]), plain.encode(TEXTS, INSTRUCTIONS[0]))
    assert fast.answer(TEXTS, INSTRUCTIONS[0]) == plain.answer(TEXTS, INSTRUCTIONS[0])


def test_weights_keep_their_names_and_are_held_in_one_place(make_model):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert")).eval()
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    prepack(model)
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == before


def test_a_large_model_is_left_as_it_is(make_model, monkeypatch):
    monkeypatch.setattr(onednn_linear, "MAX_PREPACKED_BYTES", 100)
    model = InBedder(make_model("opt"), dtype="float32")
    assert not any(isinstance(module, PrepackedLinear) for module in model.backbone.model.modules())
