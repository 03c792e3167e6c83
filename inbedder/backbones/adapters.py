"""peft adapters: their checks, and their merge into the base.

A plain LoRA adapter is merged here, any other by peft. Importing peft takes seconds, which a command such as ``inbedder answer``
would pay at every start: ``InBedder("mini")`` in a fresh process on two CPU cores takes 4.5 s with this merge and 6.3 s with
``merge_and_unload`` (medians of 5). Both give the same weights in float32 and differ by at most 0.004 in bfloat16.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import regex
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from inbedder.backbones.file_checks import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED_ADAPTER_WEIGHTS, find_adapter_weights
from inbedder.backbones.hub import LEARNED_TOKENS_CONFIG, ModelFiles, Settings, read_json_object
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.errors import MissingExtraError, ModelError, format_value
from inbedder.models.checksums import CHECKSUMS

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel

TRAINED_TOKENS = "TRAINABLE_TOKENS"
"""peft's name for adapters that replace rows of the input embeddings."""
MERGEABLE_KINDS = ("LORA", "ADALORA", "IA3", "LOHA", "LOKR", "OFT", "BOFT", "VERA", TRAINED_TOKENS)
"""Kinds of peft adapters that can be merged into their base."""
_NON_PLAIN_OPTIONS = ("use_dora", "use_rslora", "alpha_pattern", "rank_pattern", "fan_in_fan_out", "layer_replication")
_COPY_MARKERS = (".modules_to_save.", ".original_module.")
"""Parts of the names under which peft saves fully trained modules a second time when it also trains all biases."""
ALL_LINEAR = "all-linear"
"""The name of all linear layers in place of a pattern."""
PATTERN_SECONDS = 2.0
"""Time to match the patterns of an adapter against all module names."""
_PLAIN_NAME = re.compile(r"[\w.-]+")
_MATCHES_NOTHING = "(?!)"


def find_adapter_folder(files: ModelFiles) -> str | None:
    """Find the folder of a peft adapter, downloading a hub id; None for a full model."""
    if files.find(LEARNED_TOKENS_CONFIG) is not None:
        folder = files.folder or huggingface_hub.snapshot_download(
            files.name, revision=files.revision, ignore_patterns=["decoder/*"]
        )
        return str(Path(folder) / "encoder")
    if files.find(ADAPTER_CONFIG) is None:
        return None
    if files.folder is not None:
        return files.name
    patterns = [ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED_ADAPTER_WEIGHTS, CHECKSUMS]
    return str(huggingface_hub.snapshot_download(files.name, revision=files.revision, allow_patterns=patterns))


def find_learned_tokens_folder(adapter: str | None) -> Path | None:
    """Return the folder of the LLM2Vec-Gen that an adapter belongs to; None for any other adapter."""
    folder = None if adapter is None else Path(adapter).parent
    return folder if folder is not None and (folder / LEARNED_TOKENS_CONFIG).is_file() else None


def read_config(adapter: Path) -> dict[str, Any]:
    """Read ``adapter_config.json``; reject a damaged file, an unknown kind, a LoRA without rank or alpha, an odd revision."""
    path = adapter / ADAPTER_CONFIG
    config = read_json_object(path)
    if config.get("peft_type") not in MERGEABLE_KINDS:
        raise ModelError(
            f"peft_type in {path} is {config.get('peft_type')!r}. Supported: {', '.join(MERGEABLE_KINDS)}. "
            "Merge other adapters into their base first."
        )
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    if config["peft_type"] == "LORA" and (
        type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not 0 < alpha < float("inf")
    ):
        raise ModelError(
            f"r and lora_alpha in {path} are {rank!r} and {alpha!r}; they must be positive numbers. Save the adapter again."
        )
    targets = config.get("target_modules")
    if not isinstance(targets, str | list | None):
        raise ModelError(f"target_modules in {path} is {format_value(targets)}; it must be a list of names. Correct it.")
    if not isinstance(config.get("revision"), str | None):
        raise ModelError(f"revision in {path} is {format_value(config['revision'])}; it must be a commit. Correct it.")
    return config


def read_weights(adapter: Path) -> dict[str, Tensor]:
    """Read an adapter's tensors by name, without peft's copies; reject missing, damaged or empty weights."""
    path = find_adapter_weights(adapter)
    try:
        tensors: dict[str, Tensor] = read_pickled_weights([path]) if path.suffix == ".bin" else load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}). Download the adapter again, or train it again.") from error
    tensors = {name: tensor for name, tensor in tensors.items() if not any(copy in name for copy in _COPY_MARKERS)}
    if not tensors:
        raise ModelError(f"{path} holds no weights. Download the adapter again, or train it again.")
    return tensors


def read_base_name(adapter: str, settings: Settings) -> str:
    """Read which base an adapter was trained on, a folder or hub id: from its settings, else from its configuration."""
    base = settings.base or read_config(Path(adapter)).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {adapter} does not name its base model (base_model_name_or_path).")
    return str(base)


def list_replaced_weights(adapter: str) -> set[str]:
    """List the names of the base's weights that an adapter replaces."""
    return {_strip_peft_prefix(name) for name in read_weights(Path(adapter)) if ".lora_" not in name}


def _strip_peft_prefix(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def merge_lora(model: PreTrainedModel, adapter: Path) -> bool:
    """Merge a plain LoRA adapter into a model without importing peft.

    The delta of a linear layer is scale * B @ A (LoRA, Hu et al. 2021, section 4.1). Biases and fully trained modules replace
    those of the base.

    Args:
        model: The adapter's base; changed in place.
        adapter: A folder that peft saved.

    Returns:
        False, with the model unchanged, if the adapter is not plain LoRA and peft must load it.

    Raises:
        ModelError: If the adapter is damaged, or was trained on another base.
    """
    config = read_config(adapter)
    if config["peft_type"] != "LORA" or any(config.get(key) for key in _NON_PLAIN_OPTIONS):
        return False
    tensors = {_strip_peft_prefix(name): tensor for name, tensor in read_weights(adapter).items()}
    if any(".lora_" in name and not name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors):
        return False
    scale = config["lora_alpha"] / config["r"]
    parameters = dict(model.named_parameters(remove_duplicate=False))
    linear_names = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    delta_names = {re.sub(r"\.lora_[AB]\.weight$", ".weight", name) for name in tensors if ".lora_" in name}
    replaced_weights = {name: tensor for name, tensor in tensors.items() if ".lora_" not in name}
    if not (delta_names <= linear_names and replaced_weights.keys() <= parameters.keys()):
        return False
    deltas = {}
    for name in sorted(delta_names):
        a, b = _get_factors(tensors, name, config["r"], adapter)
        wide = torch.promote_types(parameters[name].dtype, torch.float32)
        deltas[name] = scale * (b.to(wide) @ a.to(wide))
    for name, tensor in {**deltas, **replaced_weights}.items():
        if tensor.shape != parameters[name].shape:
            shape = tuple(parameters[name].shape)
            raise _make_misfit_error(adapter, f"{name} has shape {tuple(tensor.shape)}, and {shape} in the base")
    _check_complete(model, config, delta_names, replaced_weights, adapter)
    with torch.no_grad():
        for name, delta in deltas.items():
            parameters[name] += delta.to(parameters[name].dtype)
        for name, tensor in replaced_weights.items():
            parameters[name].copy_(tensor)
    return True


def replace_token_embeddings(model: PreTrainedModel, adapter: Path) -> None:
    """Replace the input embeddings of an adapter's trained tokens, in place; new tokens extend the table.

    Args:
        model: The adapter's base.
        adapter: A folder that peft saved, of kind TRAINABLE_TOKENS. Other weights in it are the base's frozen embeddings.

    Raises:
        ModelError: If the tokens and their embeddings do not fit, or a token between the base's and the new ones is not trained.
    """
    ids: Any = read_config(adapter).get("token_indices")
    rows = [tensor for name, tensor in read_weights(adapter).items() if name.endswith("trainable_tokens_delta")]
    table = model.get_input_embeddings().weight
    is_list = isinstance(ids, list) and bool(ids) and all(type(token) is int and token >= 0 for token in ids)
    if not is_list or len(rows) != 1 or rows[0].shape != (len(ids), table.shape[1]):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in rows) or "none"
        raise _make_misfit_error(adapter, f"token_indices and their embeddings ({shapes}) differ, or the base's width")
    new_ids = sorted({token for token in ids if token >= len(table)})
    if new_ids != list(range(len(table), len(table) + len(new_ids))):
        raise _make_misfit_error(adapter, f"its tokens do not continue the {len(table)} of the base")
    if new_ids:
        model.resize_token_embeddings(len(table) + len(new_ids), mean_resizing=False)
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[torch.tensor(ids, device=table.device)] = rows[0].to(table)


def _get_factors(tensors: Mapping[str, Tensor], name: str, rank: int, adapter: Path) -> tuple[Tensor, Tensor]:
    """Return A and B of a layer; reject those whose rank is not the configuration's."""
    stem = name.removesuffix("weight")
    factors = [tensors.get(f"{stem}lora_{letter}.weight") for letter in "AB"]
    a, b = factors
    if a is None or b is None:
        raise ModelError(f"{adapter / ADAPTER_WEIGHTS} holds half of the delta of {name}. Train or download the adapter again.")
    if a.ndim != 2 or b.ndim != 2 or not a.shape[0] == b.shape[1] == rank:
        raise ModelError(
            f"In {adapter / ADAPTER_WEIGHTS} the delta of {name} has the factors {tuple(b.shape)} and {tuple(a.shape)}, but r in "
            f"{ADAPTER_CONFIG} is {rank}: the files belong to two adapters. Train or download the adapter again."
        )
    return a, b


def _check_complete(
    model: nn.Module, config: Mapping[str, Any], delta_names: set[str], replaced_weights: Mapping[str, Tensor], adapter: Path
) -> None:
    """Reject an adapter without a delta for one of its target layers: its own base has fewer layers."""
    targets = config.get("target_modules")
    if not targets or targets == ALL_LINEAR or config.get("layers_to_transform") or config.get("exclude_modules"):
        return
    pattern = targets if isinstance(targets, str) else rf"(.*\.)?({'|'.join(re.escape(str(part)) for part in targets)})"
    linear_names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name in match_names(pattern, linear_names, adapter):
        if f"{name}.weight" not in delta_names and f"{name}.weight" not in replaced_weights:
            raise _make_misfit_error(adapter, f"it holds no delta of {name}")


def match_names(pattern: str, names: Sequence[str], adapter: str | Path, end: float | None = None) -> list[str]:
    """Match whole module names by an adapter's pattern, which may be hostile, until ``end`` of the monotonic clock."""
    end = time.monotonic() + PATTERN_SECONDS if end is None else end
    try:
        compiled = regex.compile(pattern)
        return [name for name in names if compiled.fullmatch(name, timeout=max(end - time.monotonic(), 1e-3))]
    except (regex.error, TimeoutError, RecursionError) as error:
        reason = str(error) if isinstance(error, regex.error) else "it takes too long"
        place = f"in {Path(adapter) / ADAPTER_CONFIG}"
        raise ModelError(f"The pattern {format_value(pattern)} {place} cannot be matched ({reason}). Correct it.") from error


def _list_names(config: PeftConfig, model: nn.Module, adapter: str) -> None:
    """Replace the patterns of a configuration, which peft matches without a limit, by the names that they match."""
    names, end = [name for name, _ in model.named_modules()], time.monotonic() + PATTERN_SECONDS
    for field in ("target_modules", "exclude_modules", "feedforward_modules"):
        pattern = getattr(config, field, None)
        if isinstance(pattern, str) and pattern != ALL_LINEAR:
            matched = match_names(pattern, names, adapter, end)
            setattr(config, field, "|".join(map(re.escape, matched)) or _MATCHES_NOTHING)
    for field in ("rank_pattern", "alpha_pattern"):
        values: dict[str, Any] = {}
        for pattern, value in (getattr(config, field, None) or {}).items():  # of several that match, peft takes the first
            matched = match_names(rf"(.*\.)?({pattern})", names, adapter, end)
            values = dict.fromkeys(map(re.escape, matched), value) | values
        if hasattr(config, field):
            setattr(config, field, values)
    for field in ("layers_pattern", "modules_to_save"):
        value = getattr(config, field, None) or ()
        if odd := [name for name in ([value] if isinstance(value, str) else value) if not _PLAIN_NAME.fullmatch(str(name))]:
            place = f"in {Path(adapter) / ADAPTER_CONFIG}"
            raise ModelError(f"{field} {place} has {format_value(odd[0])}, which is no name of a module. Correct it.")


def _make_misfit_error(adapter: str | Path, reason: str) -> ModelError:
    return ModelError(
        f"The adapter {adapter} does not fit its base: {reason}. It was trained on another model. Correct base in its "
        f"inbedder.json or base_model_name_or_path in its {ADAPTER_CONFIG}, or download it again."
    )


def with_adapter(model: PreTrainedModel, adapter: str, *, merge: bool) -> Any:
    """Merge the adapter in a folder into ``model`` in place, or attach it unmerged; reject one that does not fit."""
    if merge and merge_lora(model, Path(adapter)):
        return model
    if read_config(Path(adapter))["peft_type"] == TRAINED_TOKENS:
        replace_token_embeddings(model, Path(adapter))
        return model
    weights = read_weights(Path(adapter))
    try:
        from peft import PeftConfig, PeftModel, set_peft_model_state_dict
        from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING
    except ImportError as error:
        raise MissingExtraError("peft") from error
    try:
        config = PeftConfig.from_pretrained(adapter)
        config.inference_mode = True
        _list_names(config, model, adapter)
        wrapped = PeftModel(model, config)
        loading = set_peft_model_state_dict(wrapped, weights)
        prefix = PEFT_TYPE_TO_PREFIX_MAPPING[config.peft_type]
        missing_keys = [name for name in loading.missing_keys if prefix in name or ".modules_to_save." in name]
        unmatched_keys = [*loading.unexpected_keys, *missing_keys]
        if not unmatched_keys:
            return wrapped.merge_and_unload() if merge else wrapped.get_base_model()
    except ModelError:
        raise
    except Exception as error:  # peft raises many kinds
        raise _make_misfit_error(adapter, " ".join(str(error).split())[:300]) from error
    raise _make_misfit_error(adapter, f"{unmatched_keys[0]} is in one of them only")
