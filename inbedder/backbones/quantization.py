"""Quantization of weights while they are loaded, by bitsandbytes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from inbedder.errors import InputError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig

QUANTIZATIONS = ("int8", "nf4")


def make_quantization_config(quantization: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Make the configuration for one of ``QUANTIZATIONS`` whose layers compute in ``dtype``."""
    if quantization not in QUANTIZATIONS:
        raise InputError(f"Unknown quantization {quantization!r}. Choose one of: {', '.join(QUANTIZATIONS)}.")
    if find_spec("bitsandbytes") is None:
        raise MissingExtraError("bitsandbytes", "quantization")
    from transformers import BitsAndBytesConfig

    if quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,  # as in QLoRA, whose adapters are trained on these weights
        bnb_4bit_compute_dtype=dtype,
    )


@torch.no_grad()
def check_quantized_layers(model: nn.Module, name: str) -> None:
    """Try a quantized layer of each shape, and raise ModelError if one fails: some CPU kernels need multiples of 64."""
    layers: dict[Any, Any] = {(layer.in_features, layer.out_features): layer for layer in model.modules() if _is_quantized(layer)}
    for (width, outputs), layer in layers.items():
        weight = layer.weight
        dtype = weight.quant_state.dtype if hasattr(weight, "quant_state") else torch.float16
        try:
            layer(torch.zeros(1, width, dtype=dtype, device=weight.device))
        except (RuntimeError, AssertionError) as error:
            raise ModelError(
                f"The quantization does not take the layers of {name} from {width} to {outputs} values here ({error}). "
                "Leave out quantization, or choose the other one."
            ) from error


def _is_quantized(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and type(layer).__module__.startswith("bitsandbytes.")
