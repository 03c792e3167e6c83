"""peft adapters: found, merged into their base, or left beside quantized weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file

from inbedder.backbones.hub import Settings, hub_file
from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def adapter_folder(name: str, revision: str | None) -> str | None:
    """The folder of a peft adapter, downloaded where ``name`` is a hub id; None for a whole model."""
    if hub_file(name, "adapter_config.json", revision) is None:
        return None
    if Path(name).is_dir():
        return name
    return str(snapshot_download(name, revision=revision, allow_patterns=["adapter_*"]))


def base_of(adapter: str, settings: Settings) -> str:
    """The model that an adapter was trained on."""
    config = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))
    base = settings.base or config.get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {adapter} does not say which model it belongs to (base_model_name_or_path).")
    return str(base)


def brought_by(adapter: str) -> set[str]:
    """Names of the weights that an adapter brings whole."""
    path = Path(adapter) / "adapter_model.safetensors"
    if not path.is_file():
        return set()
    with safe_open(path, framework="pt") as file:
        return {name.removeprefix("base_model.model.") for name in file.keys() if ".lora_" not in name}  # noqa: SIM118


def load_merged(model: PreTrainedModel, adapter: Path) -> bool:
    """Merge a plain LoRA adapter into a model without importing peft, which takes seconds.

    The delta of a linear layer is scale * B @ A (LoRA, Hu et al. 2021, section 4.1); biases and modules that were trained
    whole replace their namesakes.

    Args:
        model: The adapter's base; changed in place.
        adapter: A folder that peft saved.

    Returns:
        False, with the model unchanged, when the adapter is more than plain LoRA; peft must load it then.
    """
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    weights_file = adapter / "adapter_model.safetensors"
    plain = config.get("peft_type") == "LORA"
    unplain = ("use_dora", "use_rslora", "alpha_pattern", "rank_pattern", "fan_in_fan_out", "layer_replication")
    if not plain or any(config.get(key) for key in unplain) or not weights_file.is_file():
        return False
    tensors = {
        name.removeprefix("base_model.model.").replace(".base_layer.", "."): tensor
        for name, tensor in load_file(weights_file).items()
    }
    if any(".lora_" in name and not name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors):
        return False
    scale = config["lora_alpha"] / config["r"]
    target = dict(model.named_parameters(remove_duplicate=False))
    deltas = {}
    for name, tensor in tensors.items():
        if name.endswith(".lora_A.weight"):
            other = tensors[name.replace(".lora_A.", ".lora_B.")]
            deltas[name.replace(".lora_A.", ".")] = scale * (other.float() @ tensor.float())
    whole = {name: tensor for name, tensor in tensors.items() if ".lora_" not in name}
    if not (deltas.keys() | whole.keys()) <= target.keys():
        return False
    with torch.no_grad():
        for name, delta in deltas.items():
            target[name] += delta.to(target[name].dtype)
        for name, tensor in whole.items():
            target[name].copy_(tensor)
    return True


def with_adapter(model: PreTrainedModel, adapter: str, *, merge: bool) -> Any:
    """The model with an adapter: merged into its weights, or beside them."""
    if merge and load_merged(model, Path(adapter)):
        return model
    from peft import PeftModel

    wrapped = PeftModel.from_pretrained(model, adapter)
    return wrapped.merge_and_unload() if merge else wrapped.get_base_model()
