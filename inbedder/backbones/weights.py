"""Loading of weights from a folder or a hub id: dtype, device, quantization and adapters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import torch
from safetensors import SafetensorError
from torch import nn

from inbedder.backbones.adapters import (
    find_adapter_folder,
    find_learned_tokens_folder,
    list_replaced_weights,
    read_base_name,
    read_config,
    with_adapter,
)
from inbedder.backbones.bert import BertConfig, BertForMaskedLM, BertModel, can_read
from inbedder.backbones.file_checks import (
    check_json_files,
    check_not_adapter,
    check_weights,
    find_adapter_weights,
    find_pickled_weights,
)
from inbedder.backbones.forks import limit_threads_after_fork
from inbedder.backbones.hub import ModelFiles, Settings, make_load_error, open_model, read_settings
from inbedder.backbones.learned_tokens import append_learned_tokens, read_learned_token_ids
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.backbones.quantization import make_quantization_config
from inbedder.backbones.revision import WeightFiles
from inbedder.backbones.size_check import check_size
from inbedder.backbones.tokenizer_checks import check_config, check_tokenizer
from inbedder.errors import InputError, ModelError, format_value
from inbedder.models.checksums import check_checksums
from inbedder.options import ModelOptions
from inbedder.prompting.file_tokenizer import FileTokenizer
from inbedder.runtime.transformers_output import silence_transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class ResolvedModel:
    """A model whose files are found and checked, before its weights are loaded."""

    base: ModelFiles
    """The full model."""
    config: PretrainedConfig
    """The model's configuration."""
    tokenizer: PreTrainedTokenizerBase
    """The model's tokenizer."""
    settings: Settings
    """The settings saved with the weights."""
    adapter: str | None
    """Folder of the adapter, or None."""
    hub_kwargs: dict[str, Any]
    """Arguments of ``from_pretrained``: trust_remote_code and, for a hub id, the commit."""
    files: WeightFiles
    """The weight files as they were when the model was resolved."""


@dataclass(frozen=True)
class LoadedModel(ResolvedModel):
    """A model in memory."""

    model: PreTrainedModel
    """The model in evaluation mode."""
    kind: str
    """"causal", "masked", "seq2seq" or "embedding"."""
    untrained: tuple[str, ...]
    """Weights missing from the checkpoint and therefore random: a language-model head, or a pooler."""
    text_reader: LoadedModel | None = None
    """The adapter's base, if it reads the text without the adapter (``Settings.question_adapter``)."""


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether a device supports bfloat16 in hardware; on other CPUs it is slow and sometimes wrong.

    A CPU that ``ATEN_CPU_CAPABILITY`` limits (to avx2, for example) does not count as supporting it.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    if os.environ.get("ATEN_CPU_CAPABILITY", "avx512").lower() in ("avx2", "default"):
        return False
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def choose_dtype(options: ModelOptions, device: torch.device) -> torch.dtype:
    """Choose the dtype of the weights.

    Args:
        options: The user's dtype, if any. The default on a GPU is half precision; on a CPU it is bfloat16 if the CPU supports it
            in hardware (twice as fast), else float32. An int8 graph is exported from float32.
        device: The model's device.

    Returns:
        The dtype.
    """
    if options.is_onnx:
        return torch.float32
    if options.dtype is not None:
        dtype: torch.dtype = getattr(torch, options.dtype)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if has_fast_bf16(device) else torch.float16
    return torch.bfloat16 if has_fast_bf16(device) else torch.float32


def find_model(base: ModelFiles, options: ModelOptions, *, reads_own: bool = False) -> ResolvedModel:
    """Read everything except the weights of an opened model, or of an opened adapter and its base.

    With ``reads_own``, a bundled model of late interaction or its base encoder is read without transformers (``bert``).
    """
    settings, adapter = read_settings(base), find_adapter_folder(base)
    check_checksums(base.find)
    if adapter is not None:
        adapter_config = read_config(Path(adapter))
        find_adapter_weights(Path(adapter))
        base = open_model(read_base_name(adapter, settings), options.base_revision or adapter_config.get("revision"))
        check_not_adapter(base)
        check_checksums(base.find)
    elif options.base_revision is not None:
        raise InputError(f"base_revision is for adapters, and {format_value(base.name)} is not one. Set revision instead.")
    hub_kwargs: dict[str, Any] = {} if base.revision is None else {"revision": base.revision}
    hub_kwargs["trust_remote_code"] = options.trust_remote_code and adapter is None  # trust is not handed on
    check_json_files(base)
    is_plain = options.quantization is None and not options.is_onnx
    is_encoder = options.kind == "embedding" and adapter is None
    is_own = reads_own and is_plain and (settings.late_interaction or is_encoder) and can_read(base)
    config = _read("config.json", base.name, lambda: _read_config(base, is_own, hub_kwargs))
    check_weights(base, getattr(config, "transformers_weights", None))
    files = WeightFiles.of(base, adapter, modules=options.kind == "embedding")
    learned_folder = find_learned_tokens_folder(adapter)
    source, kwargs = (base.name, hub_kwargs) if learned_folder is None else (str(learned_folder), {})
    tokenizer = _read("tokenizer.json", source, lambda: _read_tokenizer(source, is_own, kwargs))
    check_config(config, base.name)
    learned_ids = [] if learned_folder is None else read_learned_token_ids(Path(str(adapter)))
    check_tokenizer(tokenizer, config, source, learned_ids)
    if settings.add_special_tokens is False:
        tokenizer.backend_tokenizer.post_processor = None
    if learned_folder is not None:
        append_learned_tokens(tokenizer, learned_ids, source)
    return ResolvedModel(base, config, tokenizer, settings, adapter, hub_kwargs, files)


def _read_config(base: ModelFiles, is_own: bool, kwargs: dict[str, Any]) -> Any:
    if is_own:
        return BertConfig(Path(base.name) / "config.json")
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(base.name, **kwargs)


def _read_tokenizer(source: str, is_own: bool, kwargs: dict[str, Any]) -> Any:
    if is_own:
        return FileTokenizer(Path(source))
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(source, **kwargs)


def _read(file: str, base: str, load: Callable[[], Any]) -> Any:
    """Read a file with transformers; replace an error by one that names the file and the fix."""
    try:
        return load()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a damaged file can raise anything, and the tokenizer's Rust a panic, which is no Exception
        reason = " ".join(str(error).split()) or type(error).__name__
        if "trust_remote_code" in reason:
            raise ModelError(
                f"{base} contains its own code, which inbedder does not run. Review it, then set trust_remote_code=True, which "
                f"counts for a model and not for the base of an adapter. ({reason[:400]})"
            ) from error
        if not (Path(base) / "config.json").is_file():
            raise make_load_error(base, error) from error
        raise ModelError(
            f"{Path(base) / file} is missing or unusable ({reason[:400]}). Download the model again, save it again, or "
            "update transformers."
        ) from error


def load_weights(
    resolved: ResolvedModel,
    kind: str,
    model_class: Any,
    options: ModelOptions,
    *,
    headless: bool = False,
    prepare: Callable[[Any, ResolvedModel], None] | None = None,
) -> LoadedModel:
    """Load the weights of a resolved model, merging an adapter unless its base is quantized.

    Args:
        resolved: The resolved model.
        kind: Its family.
        model_class: The class that loads it with ``from_pretrained``.
        options: Device, dtype and quantization.
        headless: Whether the checkpoint may contain weights of a head that the model does not have.
        prepare: Changes the model before an adapter is merged.

    Returns:
        The loaded model.

    Raises:
        ModelError: If the weights are unreadable, incomplete or do not fit the configuration, or an option does not fit.
    """
    limit_threads_after_fork()
    adapter, base = resolved.adapter, resolved.base.name
    source, kwargs, paths = _choose_source(resolved)
    pickled = read_pickled_weights(paths) if paths else None
    if not isinstance(resolved.config, BertConfig):
        check_size(resolved.base, resolved.config, model_class, pickled=pickled, trust_remote_code=kwargs["trust_remote_code"])
    del pickled  # transformers reads it again
    kwargs |= _make_loading_kwargs(options)
    model, missing = _read_weights(base, source, model_class, kwargs, quiet=adapter is not None or headless)
    if adapter is not None:
        missing -= list_replaced_weights(adapter)
    if gaps := _list_body_gaps(model, missing):
        raise ModelError(
            f"{base} lacks weights of its {'encoder' if headless else 'body'} ({', '.join(gaps[:3])}; {len(gaps)} in "
            "all), so its vectors would be random. Download it again, or correct its config.json."
        )
    if prepare is not None:
        prepare(model, resolved)
    if adapter is not None:
        model = with_adapter(model, adapter, merge=options.quantization is None)
    model = model.to(resolve_device(options.device)) if options.quantization is None else model
    untrained = tuple(sorted(key for key in missing if key.endswith(".weight")))
    return LoadedModel(**vars(resolved), model=model.eval(), kind=kind, untrained=untrained)


def _choose_source(resolved: ResolvedModel) -> tuple[str, dict[str, Any], list[Path]]:
    """Choose what ``from_pretrained`` loads and how; also list the pickled files, if these are read.

    A hub model is then loaded from its snapshot's folder: for a hub id without safetensors, transformers starts a thread that
    asks the hub to convert them.
    """
    base, kwargs = resolved.base, resolved.hub_kwargs
    paths = [] if getattr(resolved.config, "transformers_weights", None) else find_pickled_weights(base)
    if not paths:
        return base.name, {"use_safetensors": True, **kwargs}, []
    if kwargs["trust_remote_code"] and base.folder is None:
        huggingface_hub.snapshot_download(base.name, revision=base.revision, allow_patterns="*.py")
    config_path = base.find("config.json")
    assert config_path is not None  # it was read
    kwargs = {"use_safetensors": False, "weights_only": True, "trust_remote_code": kwargs["trust_remote_code"]}
    return str(config_path.parent), kwargs, paths


def _read_weights(base: str, source: str, model_class: Any, kwargs: dict[str, Any], *, quiet: bool) -> tuple[Any, set[str]]:
    """Read a model's weights; return the model and the names of weights missing from its checkpoint."""
    try:
        with nullcontext() if model_class in (BertModel, BertForMaskedLM) else silence_transformers(quiet):
            model, info = model_class.from_pretrained(source, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs)
    except SafetensorError as error:
        raise ModelError(f"The weights of {base} are damaged ({error}). Download them again.") from error
    except Exception as error:  # a configuration that fits nothing can raise anything
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise
        if not Path(base).is_dir() and isinstance(error, OSError):
            raise make_load_error(base, error) from error
        reason = " ".join(str(error).split()) or type(error).__name__
        remedy = "Install what it names" if isinstance(error, ImportError) else "Download the model again"
        raise ModelError(f"{base} does not load with its config.json ({reason[:400]}). {remedy}.") from error
    if info["mismatched_keys"]:
        name, shape, expected_shape = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"The weights of {base} do not fit its config.json: {name} is {tuple(shape)} and should be {tuple(expected_shape)}. "
            "The files belong to two models: download it again."
        )
    if extra_blocks := _list_extra_blocks(model, info["unexpected_keys"]):
        raise ModelError(
            f"The weights of {base} have more blocks than its config.json ({extra_blocks[0]}), so some would be left out. "
            "The files belong to two models: download it again."
        )
    return model, set(info["missing_keys"])


def _list_body_gaps(model: Any, missing: Iterable[str]) -> list[str]:
    """List the missing weights that belong neither to a head nor to a pooler, sorted."""
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    head = next((f"{name}." for name, module in model.named_modules() if module is model.get_output_embeddings()), None)
    body = (name for name in missing if name.startswith(prefix) and "pooler." not in name)
    return sorted(name for name in body if head is None or not name.startswith(head))


def _list_extra_blocks(model: nn.Module, unexpected: Iterable[str]) -> list[str]:
    """List the unexpected weights whose names differ from the model's only in the block number, sorted."""
    model_patterns = {re.sub(r"\d+", "#", name) for name in model.state_dict()}
    return sorted(name for name in unexpected if re.sub(r"\d+", "#", name) in model_patterns)


def resolve_device(name: str | None) -> torch.device:
    """Resolve the name of a device, None to the GPU if there is one; reject a device that cannot be used."""
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name is None else name
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it stores no values")
        torch.empty(0, device=device)
    except Exception as error:  # each kind of device has its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"The device {name!r} cannot be used here ({reason}). Try device='cpu'.") from error
    return device


def _make_loading_kwargs(options: ModelOptions) -> dict[str, Any]:
    device = resolve_device(options.device)
    kwargs: dict[str, Any] = {"dtype": choose_dtype(options, device)}
    if options.quantization is None:
        return kwargs
    kwargs["quantization_config"] = make_quantization_config(options.quantization, kwargs["dtype"])
    kwargs["device_map"] = {"": device}
    return kwargs
