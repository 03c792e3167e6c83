"""From a hub id or a folder to a backbone: kind, dtype, quantization and adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from inbedder.backbones.base import Backbone, model_kind
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.bundled import MINI_FOLDER, load_merged, resolve_base

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

KINDS = ("causal", "masked", "seq2seq")
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
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
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
    adapter, base = _split_adapter(resolve_base(name), options)
    base = resolve_base(base)
    remote: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if adapter is None and options.revision:
        remote["revision"] = options.revision
    try:
        config, tokenizer = _load_config_and_tokenizer(base, remote)
    except (OSError, ValueError) as error:
        raise _not_loaded(base, error) from error
    kind = options.kind or model_kind(config)
    if kind not in KINDS:
        raise ModelError(f"Unknown backbone {kind!r}. Choose one of: {', '.join(KINDS)}.")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = _weight_settings(options, config, device)
    try:
        model = _model_class(kind).from_pretrained(base, use_safetensors=True, **settings, **remote)
    except (OSError, ValueError) as error:
        raise _not_loaded(base, error) from error
    if adapter is not None:
        model = _with_adapter(model, adapter, merge=options.quantization is None)
    if options.quantization is None:
        model = model.to(device)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.eval(), tokenizer, kind


def _split_adapter(name: str, options: LoadOptions) -> tuple[str | None, str]:
    """Tell an adapter from a model: (adapter folder, base), or (None, model)."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if Path(name).exists() and not Path(name).is_dir():
        raise ModelError(f"{name} is a file. Give the folder that holds config.json and model.safetensors.")
    try:
        path = find_adapter_config_file(name, revision=options.revision)
    except (OSError, ValueError) as error:
        raise _not_loaded(name, error) from error
    if path is None:
        return None, name
    base = read_settings(str(Path(path).parent)).base
    base = base or json.loads(Path(path).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {name} does not say which model it belongs to (base_model_name_or_path).")
    return str(Path(path).parent), base


def _load_config_and_tokenizer(base: str, remote: dict[str, Any]) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(base, **remote)
    return config, AutoTokenizer.from_pretrained(base, **remote)


def _model_class(kind: str) -> Any:
    import transformers

    return {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
    }[kind]


def _weight_settings(options: LoadOptions, config: PretrainedConfig, device: torch.device) -> dict[str, Any]:
    settings: dict[str, Any] = {"dtype": choose_dtype(options.dtype, getattr(config, "dtype", None), device)}
    if options.quantization is None:
        return settings
    if options.quantization not in QUANTIZATIONS:
        raise ModelError(f"Unknown quantization {options.quantization!r}. Choose one of: {', '.join(QUANTIZATIONS)}.")
    if find_spec("bitsandbytes") is None:
        raise MissingExtraError("bitsandbytes", "finetune")
    from transformers import BitsAndBytesConfig

    settings["quantization_config"] = (
        BitsAndBytesConfig(load_in_8bit=True)
        if options.quantization == "int8"
        else BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=settings["dtype"]
        )
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
