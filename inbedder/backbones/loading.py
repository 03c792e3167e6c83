"""From a hub id or a folder to a backbone: kind, dtype, quantization and adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
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

from inbedder.backbones.base import Backbone, encoder_class, model_kind
from inbedder.backbones.hub import (
    MODULES_FILE,
    SETTINGS_FILE,
    Settings,
    hub_file,
    not_loaded,
    read_settings,
)
from inbedder.errors import ModelError
from inbedder.models.bundled import load_merged, resolve_name

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

MODEL_CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
QUANTIZATIONS = ("int8", "nf4")
MASK_LENGTH = 3
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadOptions:
    """Everything that decides which weights end up in memory, and how."""

    kind: str | None = None
    """"causal", "masked", "seq2seq", "instructor", None to read it from the files, or "vllm" and its options."""
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
    mask_length: int | None = None
    """Masks after the prompt of a masked LM; None is what it was fine-tuned with, else 3."""


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
    """How its files are fetched: trust_remote_code and, for a whole model, the revision."""


@dataclass(frozen=True)
class Loaded:
    """A model in memory."""

    model: PreTrainedModel
    """The weights, in evaluation mode."""
    tokenizer: PreTrainedTokenizerBase
    """The model's own."""
    kind: str
    """"causal", "masked", "seq2seq" or "instructor"."""
    settings: Settings
    """What its training left beside the weights."""
    adapter: str | None
    """Folder of the adapter, where it is one."""
    untrained: tuple[str, ...]
    """Weights that no checkpoint brought, so that they are random: usually a language-model head."""


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 itself; a CPU that does not makes it slow and, in places, wrong."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def choose_dtype(asked: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """Choose the dtype of the weights.

    Args:
        asked: "float32", "bfloat16", "float16", "int8" (whose weights are made from float32), a torch dtype, or None to choose:
            on a GPU half precision, on a CPU bfloat16 where it computes in that itself (twice as fast), else float32.
        device: Where the model will run.

    Returns:
        The dtype.

    Raises:
        ModelError: When the name is unknown.
    """
    if asked == "int8":
        return torch.float32
    if asked is not None:
        dtype = _DTYPES.get(asked) if isinstance(asked, str) else asked
        if dtype is None:
            raise ModelError(f"Unknown dtype {asked!r}. Choose one of: {', '.join(_DTYPES)}.")
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if has_fast_bf16(device) else torch.float16
    return torch.bfloat16 if has_fast_bf16(device) else torch.float32


def load_backbone(name: str, options: LoadOptions) -> tuple[Backbone, Settings]:
    """Load a model for embedding and answering.

    Args:
        name: ``mini``, a hub id or a folder: a model, or a peft adapter.
        options: Device, dtype and the rest.

    Returns:
        The backbone of the model's kind, and what its training left beside the weights.

    Raises:
        ModelError: When the model is not found, of no known kind, or an option does not fit.
    """
    from inbedder.backbones.causal import CausalBackbone
    from inbedder.backbones.masked import MaskedBackbone
    from inbedder.backbones.seq2seq import Seq2SeqBackbone

    if options.kind and options.kind.startswith("vllm"):
        from inbedder.backbones.vllm import vllm_backbone

        found = find_model(name, options)
        return vllm_backbone(found, options), found.settings
    if options.kind == "instructor" or (options.kind is None and _is_sentence_model(name, options.revision)):
        from inbedder.backbones.embedding import instructor_backbone

        return instructor_backbone(name, options)
    loaded = load_model(name, options)
    backbone: Backbone
    if loaded.kind == "masked":
        asked = options.mask_length if options.mask_length is not None else loaded.settings.mask_length
        masks = MASK_LENGTH if asked is None else asked
        if options.dtype == "int8":
            from inbedder.backbones.onnx import OnnxMaskedBackbone

            backbone = OnnxMaskedBackbone(loaded.model, loaded.tokenizer, masks)
        else:
            backbone = MaskedBackbone(loaded.model, loaded.tokenizer, masks)
    elif loaded.kind == "causal":
        backbone = CausalBackbone(loaded.model, loaded.tokenizer)
    else:
        backbone = Seq2SeqBackbone(loaded.model, loaded.tokenizer)
    backbone.answers = not loaded.untrained
    backbone.adapter = loaded.adapter
    return backbone, loaded.settings


def _is_sentence_model(name: str, revision: str | None) -> bool:
    """Whether it is a checkpoint of sentence-transformers, and none that was fine-tuned here to answer."""
    name = resolve_name(name)
    if Path(name).is_file() or hub_file(name, MODULES_FILE, revision) is None:
        return False
    return hub_file(name, SETTINGS_FILE, revision) is None or read_settings(name, revision).backbone == "instructor"


def load_model(name: str, options: LoadOptions) -> Loaded:
    """Load weights and tokenizer; merge an adapter unless its base is quantized.

    Args:
        name: ``mini``, a hub id or a folder: a model, or a peft adapter.
        options: Device, dtype and the rest.

    Returns:
        The model, and what is known of it.

    Raises:
        ModelError: When the model is not found, of no known kind, or an option does not fit.
    """
    found = find_model(name, options)
    base, adapter, tokenizer = found.base, found.adapter, found.tokenizer
    kind = options.kind or model_kind(found.config)
    if options.dtype == "int8" and kind != "masked":
        raise ModelError("dtype='int8' (ONNX Runtime) is for masked LMs. Others take quantization='int8' (bitsandbytes).")
    if kind not in (*MODEL_CLASSES, "instructor"):
        raise ModelError(f"Unknown backbone {kind!r}. Choose one of: {', '.join(MODEL_CLASSES)}, instructor, vllm.")
    model_class = MODEL_CLASSES.get(kind) or encoder_class(found.config)
    quiet = adapter is not None or kind == "instructor"
    model, missing = _load_weights(base, model_class, _weight_settings(options), found.remote, quiet=quiet)
    if adapter is not None:
        missing -= _brought_by(adapter)
        model = _with_adapter(model, adapter, merge=options.quantization is None)
    if options.quantization is None:
        model = model.to(device_of(options))
    untrained = tuple(sorted(key for key in missing if key.endswith(".weight")))
    return Loaded(model.eval(), tokenizer, kind, found.settings, adapter, untrained)


def find_model(name: str, options: LoadOptions) -> Found:
    """Find a model and read all but its weights.

    Args:
        name: ``mini``, a hub id or a folder: a model, or a peft adapter.
        options: Revision and trust_remote_code.

    Returns:
        Where it is, its configuration and its tokenizer.

    Raises:
        ModelError: When the model is not found.
    """
    name = resolve_name(name)
    if Path(name).is_file():
        raise ModelError(f"{name} is a file. Give the folder that holds config.json and model.safetensors, or a .gguf file.")
    settings, adapter = read_settings(name, options.revision), _adapter_folder(name, options)
    base = name if adapter is None else resolve_name(_base_of(adapter, settings))
    remote: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    if adapter is None and options.revision:
        remote["revision"] = options.revision
    try:
        config = AutoConfig.from_pretrained(base, **remote)
        tokenizer = AutoTokenizer.from_pretrained(base, **remote)
    except (OSError, ValueError) as error:
        raise not_loaded(base, error) from error
    return Found(base, config, tokenizer, settings, adapter, remote)


def _load_weights(
    base: str, model_class: Any, settings: dict[str, Any], remote: dict[str, Any], *, quiet: bool
) -> tuple[Any, set[str]]:
    """The model, and the names of weights that its checkpoint lacks."""
    try:
        with quietly(quiet):
            model, info = model_class.from_pretrained(base, use_safetensors=True, output_loading_info=True, **settings, **remote)
    except SafetensorError as error:
        raise ModelError(f"The weights of {base} are damaged ({error}). Download them again.") from error
    except (OSError, ValueError) as error:
        if (Path(base) / "pytorch_model.bin").is_file():
            raise ModelError(
                f"{base} holds pickled weights alone, which are not loaded. "
                "Save it as safetensors first: AutoModel.from_pretrained(...).save_pretrained(...), or the whole checkpoint of an"
                " embedding model: SentenceTransformer(...).save_pretrained(...)."
            ) from error
        raise not_loaded(base, error) from error
    return model, set(info["missing_keys"])


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


def _adapter_folder(name: str, options: LoadOptions) -> str | None:
    """The folder of a peft adapter, downloaded where ``name`` is a hub id; None for a whole model."""
    if hub_file(name, "adapter_config.json", options.revision) is None:
        return None
    if Path(name).is_dir():
        return name
    return str(snapshot_download(name, revision=options.revision, allow_patterns=["adapter_*"]))


def _base_of(adapter: str, settings: Settings) -> str:
    config = json.loads((Path(adapter) / "adapter_config.json").read_text(encoding="utf-8"))
    base = settings.base or config.get("base_model_name_or_path")
    if not base:
        raise ModelError(f"The adapter {adapter} does not say which model it belongs to (base_model_name_or_path).")
    return str(base)


def _brought_by(adapter: str) -> set[str]:
    """Names of the weights that an adapter brings whole."""
    path = Path(adapter) / "adapter_model.safetensors"
    if not path.is_file():
        return set()
    with safe_open(path, framework="pt") as file:
        return {name.removeprefix("base_model.model.") for name in file.keys() if ".lora_" not in name}  # noqa: SIM118


def device_of(options: LoadOptions) -> torch.device:
    """The device asked for, else the GPU where there is one."""
    asked = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"The device {asked!r} cannot be used here ({str(error).splitlines()[0]}). Try device='cpu'.") from error
    return device


def _weight_settings(options: LoadOptions) -> dict[str, Any]:
    device = device_of(options)
    settings: dict[str, Any] = {"dtype": choose_dtype(options.dtype, device)}
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


def _with_adapter(model: PreTrainedModel, adapter: str, *, merge: bool) -> Any:
    if merge and load_merged(model, Path(adapter)):
        return model
    from peft import PeftModel

    wrapped = PeftModel.from_pretrained(model, adapter)
    return wrapped.merge_and_unload() if merge else wrapped.get_base_model()
