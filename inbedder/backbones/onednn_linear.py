"""Linear layers on a CPU by oneDNN itself: weights laid out once as its kernels want them, bias and GELU within the product.

torch's own linear layer copies the bias into the output first, lays weights in bfloat16 out anew at every call, and has MKL do
float32, which is slow on processors of AMD. The operations are those that torch's compiler takes for the same purpose
(``torch/_inductor/fx_passes/mkldnn_fusion.py``); where they are missing, or gradients are wanted, torch's own layer computes.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import GELUActivation

from inbedder.backbones.weights import has_fast_bf16

MOST_BYTES = 384 * 2**20
"""Of linear layers in one model: their weights are held twice, and the larger `small` gains nothing by it in float32 on AVX2."""


class PrepackedLinear(nn.Linear):
    """A linear layer that shares its weights with torch's own, and holds them a second time as oneDNN wants them."""

    def __init__(self, linear: nn.Linear, *, gelu: bool = False) -> None:
        """Lay out a linear layer's weights; a GELU that follows becomes part of this layer."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.gelu = gelu
        self.train(linear.training)
        self._source: tuple[int, ...] | None
        self._pack()

    def _pack(self) -> None:
        self._source, self._packed = None, None
        if can_prepack(self.weight):
            self._source = self._state()
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the layer, or change its precision, and lay its weights out anew."""
        super()._apply(fn, recurse)
        self._pack()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """All but the second weights, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name not in ("_packed", "_source")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lay out the weights of a copy."""
        super().__setstate__(state)
        self._pack()

    def forward(self, input: Tensor) -> Tensor:
        """Multiply, add the bias, and take GELU of it where it follows; shape (..., out_features)."""
        if self._fits(input):
            then = ("gelu", "none") if self.gelu else ("none", "")
            found: Tensor = torch.ops.mkldnn._linear_pointwise(input, self._packed, self.bias, then[0], [], then[1])
            return found
        plain = super().forward(input)
        return F.gelu(plain) if self.gelu else plain

    def _fits(self, given: Tensor) -> bool:
        """Whether the second weights are still those of the layer, and fit what comes in."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
            return False
        if given.device.type != "cpu" or not given.numel():
            return False
        return self._state() == self._source and given.dtype == self.weight.dtype

    def _state(self) -> tuple[int, ...]:
        weight: Tensor = self.weight
        return (id(weight), weight.data_ptr(), weight._version) if type(weight) is nn.Parameter else ()


def prepack(model: nn.Module) -> None:
    """Let a model in evaluation mode compute its linear layers with oneDNN, where that is available and the memory suffices.

    The weights stay the model's own, and later changes to them count, except to their ``data``, which torch does not report.
    """
    linear = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    if not linear or not all(can_prepack(module.weight) for module in linear.values()):
        return
    if sum(module.weight.nbytes for module in linear.values()) > MOST_BYTES:
        return
    activated = {f"{name}.dense" for name, module in model.named_modules() if _takes_gelu(module)}
    for name, module in linear.items():
        model.set_submodule(name, PrepackedLinear(module, gelu=name in activated))
    for name in activated:
        model.get_submodule(name.removesuffix(".dense")).intermediate_act_fn = nn.Identity()


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN computes with such weights here, and fast; weights of a library's own kind are left to it."""
    cpu = torch.device("cpu")
    if type(weight) not in (Tensor, nn.Parameter):
        return False
    fast = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_fast_bf16(cpu))
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return fast and there and weight.device == cpu and platform.machine().lower() in ("x86_64", "amd64")


def _takes_gelu(module: nn.Module) -> bool:
    """Whether it is the first half of the feed-forward layer of BERT or of one built like it."""
    activation = getattr(module, "intermediate_act_fn", None)
    return type(activation) is GELUActivation and type(getattr(module, "dense", None)) is nn.Linear
