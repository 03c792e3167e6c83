"""Load peft adapters: check them, then merge them into their base or leave them beside quantized weights.

A plain LoRA adapter is merged here, any other by peft. Importing peft takes seconds, which a command such as ``inbedder answer``
pays at every start: ``InBedder("mini")`` in a fresh process on two CPU cores takes 4.5 s with this merge and 6.3 s with
``merge_and_unload`` (medians of 5). Both give the same weights in float32 and differ by at most 0.004 in bfloat16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from inbedder.backbones.file_checks import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_adapter_weights
from inbedder.backbones.hub import Settings, hub_file, read_table
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.checksums import CHECKSUMS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ("LORA", "ADALORA", "IA3", "LOHA", "LOKR", "OFT", "BOFT", "VERA")
"""Adapters of peft that can be merged into their base."""
_UNPLAIN = ("use_dora", "use_rslora", "alpha_pattern", "rank_pattern", "fan_in_fan_out", "layer_replication")
_COPIES = (".modules_to_save.", ".original_module.")
"""What peft saves a second time, under another name, of modules trained whole when all biases are trained, too."""


def adapter_folder(name: str, revision: str | None) -> str | None:
    """The folder of a peft adapter, downloaded where ``name`` is a hub id; None for a whole model."""
    if hub_file(name, ADAPTER_CONFIG, revision) is None:
        return None
    if Path(name).is_dir():
        return name
    return str(snapshot_download(name, revision=revision, allow_patterns=[ADAPTER_CONFIG, ADAPTER_WEIGHTS, CHECKSUMS]))


def read_config(adapter: Path) -> dict[str, Any]:
    """Read ``adapter_config.json``; refuse a damaged file, an unknown kind, and a LoRA whose rank or alpha is not above 0."""
    path = adapter / ADAPTER_CONFIG
    config = read_table(path)
    if config.get("peft_type") not in KINDS:
        raise ModelError(
            f"peft_type in {path} is {config.get('peft_type')!r}. Known here: {', '.join(KINDS)}; "
            "merge others into their base first."
        )
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    if config["peft_type"] == "LORA" and (
        type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not 0 < alpha < float("inf")
    ):
        raise ModelError(
            f"r and lora_alpha in {path} are {rank!r} and {alpha!r}; they must be numbers above 0. Save the adapter again."
        )
    return config


def read_weights(adapter: Path) -> dict[str, Tensor]:
    """Read an adapter's tensors by name, each once; refuse weights that are missing, pickled, damaged or empty."""
    path = check_adapter_weights(adapter)
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}). Download the adapter again, or train it again.") from error
    tensors = {name: tensor for name, tensor in tensors.items() if not any(copy in name for copy in _COPIES)}
    if not tensors:
        raise ModelError(f"{path} holds no weights. Download the adapter again, or train it again.")
    return tensors


def base_of(adapter: str, settings: Settings) -> str:
    """Find the folder or hub id that an adapter was trained on: its settings' base comes before that of its configuration."""
    base = settings.base or read_config(Path(adapter)).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {adapter} does not say which model it belongs to (base_model_name_or_path).")
    return str(base)


def brought_by(adapter: str) -> set[str]:
    """Names of the weights that an adapter brings whole."""
    return {_plain_name(name) for name in read_weights(Path(adapter)) if ".lora_" not in name}


def _plain_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def load_merged(model: PreTrainedModel, adapter: Path) -> bool:
    """Merge a plain LoRA adapter into a model without importing peft.

    The delta of a linear layer is scale * B @ A (LoRA, Hu et al. 2021, section 4.1); biases and modules that were trained
    whole replace their namesakes.

    Args:
        model: The adapter's base; changed in place.
        adapter: A folder that peft saved.

    Returns:
        False, with the model unchanged, when the adapter is more than plain LoRA; peft must load it then.

    Raises:
        ModelError: When the adapter is damaged, or was trained on another base.
    """
    config = read_config(adapter)
    if config["peft_type"] != "LORA" or any(config.get(key) for key in _UNPLAIN):
        return False
    tensors = {_plain_name(name): tensor for name, tensor in read_weights(adapter).items()}
    if any(".lora_" in name and not name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors):
        return False
    scale = config["lora_alpha"] / config["r"]
    target = dict(model.named_parameters(remove_duplicate=False))
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    halves = {re.sub(r"\.lora_[AB]\.weight$", ".weight", name) for name in tensors if ".lora_" in name}
    whole = {name: tensor for name, tensor in tensors.items() if ".lora_" not in name}
    if not (halves <= linear and whole.keys() <= target.keys()):
        return False
    deltas = {}
    for name in sorted(halves):
        first, second = _halves(tensors, name, config["r"], adapter)
        deltas[name] = scale * (second.float() @ first.float())
    for name, tensor in {**deltas, **whole}.items():
        if tensor.shape != target[name].shape:
            raise _unfit(adapter, f"{name} is {tuple(tensor.shape)} there and {tuple(target[name].shape)} in the base")
    _check_complete(model, config, halves, whole, adapter)
    with torch.no_grad():
        for name, delta in deltas.items():
            target[name] += delta.to(target[name].dtype)
        for name, tensor in whole.items():
            target[name].copy_(tensor)
    return True


def _halves(tensors: Mapping[str, Tensor], name: str, rank: int, adapter: Path) -> tuple[Tensor, Tensor]:
    """A and B of a layer, of the rank that the configuration says."""
    stem = name.removesuffix("weight")
    found = [tensors.get(f"{stem}lora_{half}.weight") for half in "AB"]
    first, second = found
    if first is None or second is None:
        raise ModelError(f"{adapter / ADAPTER_WEIGHTS} holds half of the change of {name}. Train or download the adapter again.")
    if first.ndim != 2 or second.ndim != 2 or not first.shape[0] == second.shape[1] == rank:
        raise ModelError(
            f"{adapter / ADAPTER_WEIGHTS} changes {name} by {tuple(second.shape)} and {tuple(first.shape)}, but r in "
            f"{ADAPTER_CONFIG} is {rank}: the files are of two adapters. Train or download the adapter again."
        )
    return first, second


def _check_complete(
    model: nn.Module, config: Mapping[str, Any], halves: set[str], whole: Mapping[str, Tensor], adapter: Path
) -> None:
    """Refuse an adapter that leaves out layers of the base that it aims at: its own base had fewer."""
    aim = config.get("target_modules")
    if not aim or aim == "all-linear" or config.get("layers_to_transform") or config.get("exclude_modules"):
        return
    pattern = aim if isinstance(aim, str) else rf"(.*\.)?({'|'.join(re.escape(str(part)) for part in aim)})"
    for name, module in model.named_modules():
        aimed_at = isinstance(module, nn.Linear) and re.fullmatch(pattern, name)
        if aimed_at and f"{name}.weight" not in halves and f"{name}.weight" not in whole:
            raise _unfit(adapter, f"it holds no change of {name}")


def _unfit(adapter: str | Path, reason: str) -> ModelError:
    return ModelError(
        f"The adapter {adapter} does not fit its base: {reason}. It was trained on another model: correct base in its "
        f"inbedder.json or base_model_name_or_path in its {ADAPTER_CONFIG}, or download it again."
    )


def with_adapter(model: PreTrainedModel, adapter: str, *, merge: bool) -> Any:
    """Merge the adapter in a folder into ``model``, in place, or leave it beside the weights; refuse one that does not fit."""
    if merge and load_merged(model, Path(adapter)):
        return model
    read_config(Path(adapter))
    weights = read_weights(Path(adapter))
    try:
        from peft import PeftConfig, PeftModel, set_peft_model_state_dict
        from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING
    except ImportError as error:
        raise MissingExtraError("peft", "finetune") from error
    try:
        config = PeftConfig.from_pretrained(adapter)
        config.inference_mode = True
        wrapped = PeftModel(model, config)
        left = set_peft_model_state_dict(wrapped, weights)
        prefix = PEFT_TYPE_TO_PREFIX_MAPPING[config.peft_type]
        gaps = [*left.unexpected_keys, *(name for name in left.missing_keys if prefix in name or ".modules_to_save." in name)]
        if not gaps:
            return wrapped.merge_and_unload() if merge else wrapped.get_base_model()
    except Exception as error:  # peft raises many kinds
        raise _unfit(adapter, " ".join(str(error).split())[:300]) from error
    raise _unfit(adapter, f"{gaps[0]} stands alone")
