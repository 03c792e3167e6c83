"""From a hub id or a folder to weights in memory: dtype, device, quantization and adapters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig, PreTrainedModel
from transformers.utils import logging

from inbedder.backbones.adapters import adapter_folder, base_of, brought_by, read_config, with_adapter
from inbedder.backbones.file_checks import check_adapter_weights, check_sums, check_tables, check_weights, check_whole
from inbedder.backbones.hub import Settings, not_loaded, read_settings
from inbedder.backbones.revision import WeightFiles
from inbedder.errors import ModelError
from inbedder.models.bundled import resolve_name
from inbedder.options import ModelOptions

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

QUANTIZATIONS = ("int8", "nf4")


@dataclass(frozen=True)
class Found:
    """A model that is there, without its weights."""

    base: str
    """Folder or hub id of the whole model."""
    config: PretrainedConfig
    """Its configuration."""
    tokenizer: PreTrainedTokenizerBase
    """Its tokenizer."""
    settings: Settings
    """What its training left beside the weights."""
    adapter: str | None
    """Folder of the adapter, where it is one."""
    remote: dict[str, Any]
    """How its files are fetched: trust_remote_code and, from the hub, the commit."""
    files: WeightFiles
    """The files of its weights as they are now."""


@dataclass(frozen=True)
class Loaded:
    """A model in memory."""

    model: PreTrainedModel
    """The weights, in evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    """The model's own."""
    kind: str
    """"causal", "masked", "seq2seq" or "embedding"."""
    settings: Settings
    """What its training left beside the weights."""
    adapter: str | None
    """Folder of the adapter, where it is one."""
    base: str
    """Folder or hub id of the whole model."""
    untrained: tuple[str, ...]
    """Weights that no checkpoint brought, so that they are random: a language-model head, or a pooler."""
    files: WeightFiles
    """The files of its weights as they were when it was loaded."""


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 itself; a CPU that does not makes it slow and, in places, wrong.

    A CPU that ``ATEN_CPU_CAPABILITY`` holds back (to avx2, say) counts as one that does not.
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
        options: The dtype that is wanted, or none: then on a GPU half precision, on a CPU bfloat16 where it computes in that
            itself (twice as fast), else float32. An int8 graph is made from float32.
        device: Where the model will run.

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


def find_model(options: ModelOptions) -> Found:
    """Find a model and read all but its weights.

    Args:
        options: Its name, a hub id or a folder: of a model, or of a peft adapter; revision and trust_remote_code.

    Returns:
        Where it is, its configuration and its tokenizer.

    Raises:
        ModelError: When the model is not found.
    """
    name = resolve_name(options.model)
    if Path(name).is_file():
        raise ModelError(f"{name} is a file. Give the folder that holds config.json and model.safetensors, or a .gguf file.")
    settings, adapter = read_settings(name, options.revision), adapter_folder(name, options.revision)
    check_sums(name, options.revision)
    base = name
    if adapter is not None:
        read_config(Path(adapter))
        check_adapter_weights(Path(adapter))
        base = resolve_name(base_of(adapter, settings))
        check_whole(base)
        check_sums(base)
    remote: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if adapter is None and options.revision:
        remote["revision"] = options.revision
    check_tables(Path(base))
    config = _read("config.json", base, lambda: AutoConfig.from_pretrained(base, **remote))
    if (commit := getattr(config, "_commit_hash", None)) and not Path(base).is_dir():
        remote["revision"] = commit  # all files are of the commit that the configuration is of
    check_weights(base, remote.get("revision"), getattr(config, "transformers_weights", None))
    files = WeightFiles.of(base, adapter, commit, modules=options.kind == "embedding")
    tokenizer = _read("tokenizer.json", base, lambda: AutoTokenizer.from_pretrained(base, **remote))
    _check_tokenizer(tokenizer, config, base)
    return Found(base, config, tokenizer, settings, adapter, remote, files)


def _read(file: str, base: str, read: Callable[[], Any]) -> Any:
    """What transformers reads of a file; its errors say which and what to do."""
    try:
        return read()
    except Exception as error:  # a damaged file can raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        if "trust_remote_code" in reason:
            raise ModelError(
                f"{base} brings code of its own, which is not run. Read it, then give trust_remote_code=True. ({reason[:400]})"
            ) from error
        if not (Path(base) / "config.json").is_file():
            raise not_loaded(base, error) from error
        raise ModelError(
            f"{Path(base) / file} is missing or cannot be used ({reason[:400]}). Download the model again, save it again, or "
            "update transformers."
        ) from error


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, base: str) -> None:
    """Refuse a tokenizer without words, or with tokens that the model does not have."""
    special = set(tokenizer.all_special_ids)
    if len(tokenizer) <= len(special):
        raise ModelError(f"The tokenizer of {base} has no words: tokenizer.json is missing or empty. Download the model again.")
    size = getattr(config.get_text_config(), "vocab_size", None)
    if size is not None and max(tokenizer.vocab_size - 1, *special, 0) >= size:
        raise ModelError(
            f"The tokenizer of {base} has {len(tokenizer)} tokens and vocab_size in its config.json is {size}: the files are of "
            "two models. Download the model again."
        )


def load_weights(found: Found, kind: str, model_class: Any, options: ModelOptions, *, headless: bool = False) -> Loaded:
    """Load the weights of a model that was found; merge an adapter unless its base is quantized.

    Args:
        found: The model.
        kind: Its family.
        model_class: What loads it: a class with ``from_pretrained``.
        options: Device, dtype and the rest.
        headless: Whether weights of a head may be left over.

    Returns:
        The model, and what is known of it.

    Raises:
        ModelError: When the weights cannot be read, do not fit the configuration or are not all there, or an option does not fit.
    """
    adapter = found.adapter
    quiet = adapter is not None or headless
    model, missing = _read_weights(found, model_class, _weight_settings(options), quiet=quiet)
    if adapter is not None:
        missing -= brought_by(adapter)
    if gaps := _body_gaps(model, missing):
        raise ModelError(
            f"{found.base} lacks weights of its {'encoder' if headless else 'body'} ({', '.join(gaps[:3])}; {len(gaps)} in all), "
            "so its vectors would be random. Download it again; or its config.json is another model's."
        )
    if adapter is not None:
        model = with_adapter(model, adapter, merge=options.quantization is None)
    if options.quantization is None:
        model = model.to(device_of(options.device))
    untrained = tuple(sorted(key for key in missing if key.endswith(".weight")))
    return Loaded(model.eval(), found.tokenizer, kind, found.settings, adapter, found.base, untrained, found.files)


def _read_weights(found: Found, model_class: Any, settings: dict[str, Any], *, quiet: bool) -> tuple[Any, set[str]]:
    """The model, and the names of weights that its checkpoint lacks."""
    base = found.base
    reading = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with quietly(quiet):
            model, info = model_class.from_pretrained(base, **reading, **settings, **found.remote)
    except SafetensorError as error:
        raise ModelError(f"The weights of {base} are damaged ({error}). Download them again.") from error
    except Exception as error:  # a configuration that fits nothing can raise anything
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in str(error):
            raise
        if not Path(base).is_dir() and isinstance(error, OSError):
            raise not_loaded(base, error) from error
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            f"{base} cannot be loaded as its config.json says ({reason[:400]}). Download the model again."
        ) from error
    if info["mismatched_keys"]:
        name, there, wanted = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"The weights of {base} do not fit its config.json: {name} is {tuple(there)} and should be {tuple(wanted)}. "
            "The files are of two models: download it again."
        )
    if further := _further_blocks(model, info["unexpected_keys"]):
        raise ModelError(
            f"The weights of {base} hold more blocks than its config.json says ({further[0]}), so some would be left out. The "
            "files are of two models: download it again."
        )
    return model, set(info["missing_keys"])


def _body_gaps(model: Any, missing: Iterable[str]) -> list[str]:
    """The missing weights that are no head's and no pooler's."""
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    head = next((f"{name}." for name, module in model.named_modules() if module is model.get_output_embeddings()), None)
    body = (name for name in missing if name.startswith(prefix) and "pooler." not in name)
    return sorted(name for name in body if head is None or not name.startswith(head))


def _further_blocks(model: nn.Module, unexpected: Iterable[str]) -> list[str]:
    """The weights left over that are like some of the model's own but for the number of their block."""
    own = {re.sub(r"\d+", "#", name) for name in model.state_dict()}
    return sorted(name for name in unexpected if re.sub(r"\d+", "#", name) in own)


@contextmanager
def quietly(expected_gaps: bool) -> Iterator[None]:
    """No progress bar for weights; and no report of missing weights where they are expected."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    if expected_gaps:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def device_of(name: str | None) -> torch.device:
    """The device asked for, else the GPU where there is one."""
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name is None else name
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=device)
    except Exception as error:  # each kind of device has its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"The device {name!r} cannot be used here ({reason}). Try device='cpu'.") from error
    return device


def _weight_settings(options: ModelOptions) -> dict[str, Any]:
    device = device_of(options.device)
    settings: dict[str, Any] = {"dtype": choose_dtype(options, device)}
    if options.quantization is None:
        return settings
    if options.quantization not in QUANTIZATIONS:
        raise ModelError(f"Unknown quantization {options.quantization!r}. Choose one of: {', '.join(QUANTIZATIONS)}.")
    if find_spec("bitsandbytes") is None:
        raise ModelError("quantization needs bitsandbytes. Install it with: pip install bitsandbytes")
    settings["quantization_config"] = (
        BitsAndBytesConfig(load_in_8bit=True)
        if options.quantization == "int8"
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=settings["dtype"])
    )
    settings["device_map"] = {"": device}
    return settings
