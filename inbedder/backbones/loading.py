"""From a hub id or a folder to a backbone: kind, dtype, quantization and adapters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from inbedder.backbones.base import Backbone, model_kind
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.bundled import MINI_FOLDER, load_merged, resolve_base, sha256_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

MODEL_CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
QUANTIZATIONS = ("int8", "nf4")
SETTINGS_FILE = "inbedder.json"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadOptions:
    """Everything that decides which weights end up in memory, and how."""

    kind: str | None = None
    """"causal", "masked", "seq2seq", or None to read it from the configuration."""
    device: str | None = None
    """A torch device, or None for the GPU where there is one."""
    dtype: str | torch.dtype | None = None
    """None chooses by capability, see ``choose_dtype``."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    trust_remote_code: bool = False
    """Reaches configuration, tokenizer and model."""
    quantization: str | None = None
    """"int8", "nf4" (bitsandbytes), or None."""
    mask_length: int = 3
    """Masks after the prompt of a masked LM."""


@dataclass(frozen=True)
class Settings:
    """What a fine-tuned model remembers of its training, in ``inbedder.json`` beside its weights."""

    base: str | None = None
    """The model that an adapter was trained on."""
    template: str | None = None
    """Name or pattern of the training prompts' template."""
    mask_length: int | None = None
    """Masks after the prompt."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Everything else in the file."""


def read_settings(name: str) -> Settings:
    """Read ``inbedder.json`` of a model folder.

    Args:
        name: A folder, or a hub id (which has no settings file of ours).

    Returns:
        The settings; empty ones where there is no such file.
    """
    path = Path(name) / SETTINGS_FILE
    if not path.is_file():
        return Settings()
    values = json.loads(path.read_text(encoding="utf-8"))
    known = {key: values.pop(key, None) for key in ("base", "template", "mask_length")}
    return Settings(**known, extra=values)


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 itself; a CPU that does not makes it slow and, in places, wrong."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def choose_dtype(asked: str | torch.dtype | None, stored: torch.dtype | None, device: torch.device) -> torch.dtype:
    """Choose the dtype of the weights.

    Args:
        asked: "float32", "bfloat16", "float16", a torch dtype, or None to choose: on a GPU half precision, on a CPU what
            the checkpoint is stored in, but never a half precision that this CPU does not compute in itself.
        stored: The checkpoint's dtype.
        device: Where the model will run.

    Returns:
        The dtype.

    Raises:
        ModelError: When the name is unknown.
    """
    if asked is not None:
        dtype = _DTYPES.get(asked) if isinstance(asked, str) else asked
        if dtype is None:
            raise ModelError(f"Unknown dtype {asked!r}. Choose one of: {', '.join(_DTYPES)}.")
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if has_fast_bf16(device) else torch.float16
    if stored in (torch.float16, torch.bfloat16) and has_fast_bf16(device):
        return torch.bfloat16
    return torch.float32


def load_backbone(name: str, options: LoadOptions) -> Backbone:
    """Load a model for embedding and answering.

    Args:
        name: ``mini``, a hub id or a folder: a model, or a peft adapter.
        options: Device, dtype and the rest.

    Returns:
        The backbone of the model's kind.

    Raises:
        ModelError: When the model is not found, of no known kind, or an option does not fit.
    """
    from inbedder.backbones.causal import CausalBackbone
    from inbedder.backbones.masked import MaskedBackbone
    from inbedder.backbones.seq2seq import Seq2SeqBackbone

    if name == "mini":
        name = str(MINI_FOLDER)
    model, tokenizer, kind = load_model(name, options)
    if kind == "masked":
        return MaskedBackbone(model, tokenizer, options.mask_length)
    return CausalBackbone(model, tokenizer) if kind == "causal" else Seq2SeqBackbone(model, tokenizer)


def load_model(name: str, options: LoadOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """Load weights and tokenizer; merge an adapter unless its base is quantized.

    Args:
        name: A hub id or a folder: a model, or a peft adapter.
        options: Device, dtype and the rest.

    Returns:
        The model in evaluation mode, its tokenizer, its kind.

    Raises:
        ModelError: When the model is not found, of no known kind, or an option does not fit.
    """
    if Path(name).is_file():
        raise ModelError(f"{name} is a file. Give the folder that holds config.json and model.safetensors.")
    base, adapter = resolve_base(name), _adapter_folder(resolve_base(name), options)
    remote: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if adapter is not None:
        base = resolve_base(_base_of(adapter))
    elif options.revision:
        remote["revision"] = options.revision
    try:
        config = AutoConfig.from_pretrained(base, **remote)
        tokenizer = AutoTokenizer.from_pretrained(base, **remote)
    except (OSError, ValueError) as error:
        raise _not_loaded(base, error) from error
    kind = options.kind or model_kind(config)
    if kind not in MODEL_CLASSES:
        raise ModelError(f"Unknown backbone {kind!r}. Choose one of: {', '.join(MODEL_CLASSES)}.")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = _weight_settings(options, config, device)
    try:
        with _quiet(adapter is not None):
            model = MODEL_CLASSES[kind].from_pretrained(base, use_safetensors=True, **settings, **remote)
    except (OSError, ValueError) as error:
        raise _not_loaded(base, error) from error
    if adapter is not None:
        model = _with_adapter(model, adapter, merge=options.quantization is None)
    if options.quantization is None:
        model = model.to(device)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.eval(), tokenizer, kind


@contextmanager
def _quiet(expected_gaps: bool) -> Iterator[None]:
    """No progress bar for weights; and no report of missing weights where an adapter brings them."""
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


def _adapter_folder(name: str, options: LoadOptions) -> str | None:
    """The folder of a peft adapter, downloaded where ``name`` is a hub id; None for a whole model."""
    if Path(name).is_dir():
        return name if (Path(name) / "adapter_config.json").is_file() else None
    try:
        AutoConfig.from_pretrained(name, revision=options.revision, trust_remote_code=options.trust_remote_code)
        return None
    except (OSError, ValueError) as error:
        if "config.json" not in str(error) or "connect" in str(error):
            raise _not_loaded(name, error) from error
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, revision=options.revision, allow_patterns=["adapter_*", SETTINGS_FILE]))
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error
    if not (folder / "adapter_config.json").is_file():
        raise ModelError(f"{name!r} on the hub holds neither config.json nor adapter_config.json: it is no model.")
    return str(folder)


def _base_of(adapter: str) -> str:
    config = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))
    base = read_settings(adapter).base or config.get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {adapter} does not say which model it belongs to (base_model_name_or_path).")
    return str(base)


def weights_revision(name: str, backbone: Backbone) -> str:
    """What identifies a loaded model's weights.

    Args:
        name: The folder or hub id it was loaded from.
        backbone: The model.

    Returns:
        For a folder the first 16 digits of the SHA-256 of its safetensors, for a hub id the commit.
    """
    if not Path(name).is_dir():
        return str(getattr(backbone.model.config, "_commit_hash", None) or "unknown")
    digests = [sha256_of(path) for path in sorted(Path(name).glob("*.safetensors"))]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _weight_settings(options: LoadOptions, config: PretrainedConfig, device: torch.device) -> dict[str, Any]:
    settings: dict[str, Any] = {"dtype": choose_dtype(options.dtype, getattr(config, "dtype", None), device)}
    if options.quantization is None:
        return settings
    if options.quantization not in QUANTIZATIONS:
        raise ModelError(f"Unknown quantization {options.quantization!r}. Choose one of: {', '.join(QUANTIZATIONS)}.")
    if find_spec("bitsandbytes") is None:
        raise MissingExtraError("bitsandbytes", "finetune")
    settings["quantization_config"] = (
        BitsAndBytesConfig(load_in_8bit=True)
        if options.quantization == "int8"
        else BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=settings["dtype"])
    )
    settings["device_map"] = {"": device}
    return settings


def _with_adapter(model: PreTrainedModel, adapter: str, *, merge: bool) -> Any:
    if merge and load_merged(model, Path(adapter)):
        return model
    from peft import PeftModel

    wrapped = PeftModel.from_pretrained(model, adapter)
    return wrapped.merge_and_unload() if merge else wrapped.get_base_model()


def _not_loaded(name: str, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"Cannot load the model {name!r}: it is neither a folder with a model here nor a model in reach on the hub. "
        f"Check the spelling and the network, or give a local folder. ({reason})"
    )
