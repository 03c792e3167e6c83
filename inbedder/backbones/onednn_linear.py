"""Linear layers computed by oneDNN on a CPU, with prepacked weights and fused bias and GELU.

torch's own linear layer copies the bias into the output first, packs bfloat16 weights at every call, and uses MKL for float32,
which is slow on AMD processors. The operations here are those of torch's compiler
(``torch/_inductor/fx_passes/mkldnn_fusion.py``), which torch may change: ``has_operations`` tries them once. If they are missing
or changed, or gradients are needed, torch's own layer computes.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inbedder.backbones.weights import has_fast_bf16

MAX_PREPACKED_BYTES = 384 * 2**20
"""Maximum bytes of a model's linear layers, which are held twice; the larger `small` gains nothing in float32 on AVX2."""


class PrepackedLinear(nn.Linear):
    """A linear layer that shares its weights with torch's own, and holds a second, packed copy for oneDNN."""

    def __init__(self, linear: nn.Linear, *, gelu: bool = False) -> None:
        """Pack a linear layer's weights; with ``gelu``, the GELU that follows becomes part of this layer."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.gelu = gelu
        self.train(linear.training)
        self._packed_state: tuple[int, ...] | None
        self._pack()

    def _pack(self) -> None:
        self._packed_state, self._packed = None, None
        if can_prepack(self.weight):
            self._packed_state = self._get_weight_state()
            self._packed = _pack_weight(self.weight.detach())

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the layer or change its dtype, and pack its weights again."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._pack()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the packed weights, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name not in ("_packed", "_packed_state")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state and pack the weights again."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._pack()

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer, and GELU if it is fused; shape (..., out_features)."""
        if self._can_use_packed(input):
            return _apply_packed(input, self._packed, self.bias, self.gelu)
        output = super().forward(input)
        return F.gelu(output) if self.gelu else output

    def _can_use_packed(self, states: Tensor) -> bool:
        """Return whether the packed weights still match the layer and fit the input."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return False
        if states.device.type != "cpu" or not states.numel():
            return False
        return self._get_weight_state() == self._packed_state and states.dtype == self.weight.dtype

    def _get_weight_state(self) -> tuple[int, ...]:
        weight: Tensor = self.weight
        return (id(weight), weight.data_ptr(), weight._version) if type(weight) is nn.Parameter else ()


def prepack(model: nn.Module) -> None:
    """Replace the linear layers of a model in evaluation mode by prepacked ones, if oneDNN is available and memory suffices.

    The model keeps its weights. Later changes to them take effect, except changes to their ``data``, which torch does not report.
    """
    linear_layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    if not linear_layers or not all(can_prepack(module.weight) for module in linear_layers.values()):
        return
    if sum(module.weight.nbytes for module in linear_layers.values()) > MAX_PREPACKED_BYTES:
        return
    gelu_names = {f"{name}.dense" for name, module in model.named_modules() if _has_gelu(module)}
    for name, module in linear_layers.items():
        model.set_submodule(name, PrepackedLinear(module, gelu=name in gelu_names))
    for name in gelu_names:
        model.get_submodule(name.removesuffix(".dense")).intermediate_act_fn = nn.Identity()


def can_prepack(weight: Tensor) -> bool:
    """Return whether oneDNN computes fast with such weights on this machine; tensor subclasses are left to their library."""
    cpu = torch.device("cpu")
    if type(weight) not in (Tensor, nn.Parameter):
        return False
    is_fast = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_fast_bf16(cpu))
    return is_fast and weight.device == cpu and platform.machine().lower() in ("x86_64", "amd64") and has_operations()


@cache
def has_operations() -> bool:
    """Return whether torch's private operations of oneDNN exist and compute what its linear layer does."""
    inputs, weight, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3).sin(), torch.arange(4.0)
    try:
        packed = _pack_weight(weight)
        outputs = [_apply_packed(inputs, packed, bias, gelu) for gelu in (False, True)]
    except Exception:  # a missing operation, another signature, or torch without oneDNN
        return False
    expected = F.linear(inputs, weight, bias)
    return torch.allclose(outputs[0], expected, atol=1e-5) and torch.allclose(outputs[1], F.gelu(expected), atol=1e-5)


def _pack_weight(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


def _apply_packed(states: Tensor, packed: Any, bias: Tensor | None, gelu: bool) -> Tensor:
    post_op = ("gelu", "none") if gelu else ("none", "")
    output: Tensor = torch.ops.mkldnn._linear_pointwise(states, packed, bias, post_op[0], [], post_op[1])
    return output


def _has_gelu(module: nn.Module) -> bool:
    """Return whether a module is the first half of a feed-forward layer as in BERT, with GELU."""
    activation = getattr(module, "intermediate_act_fn", None)
    return type(activation).__name__ in ("GELU", "GELUActivation") and type(getattr(module, "dense", None)) is nn.Linear
