"""The families of models: for each, the class that loads it and the function that builds its backbone.

The configuration's architecture determines the family, never the checkpoint's name. Checkpoints of sentence-transformers are
embedding models. vLLM is not a family but an engine for causal LMs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from inbedder.backbones.bert import BertConfig, BertForMaskedLM
from inbedder.backbones.causal import build_causal_backbone
from inbedder.backbones.embedding import build_embedding_backbone, choose_encoder_class, reject_answering
from inbedder.backbones.file_checks import find_adapter_weights, find_pickled_weights
from inbedder.backbones.hub import (
    LEARNED_TOKENS_CONFIG,
    MODULES_FILE,
    SETTINGS_FILE,
    ModelFiles,
    Settings,
    open_model,
    read_settings,
)
from inbedder.backbones.late_interaction import LateInteractionBackbone, add_gate, add_language_filter
from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.onednn_linear import prepack
from inbedder.backbones.padding_check import check_reading
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.quantization import check_quantized_layers
from inbedder.backbones.question_adapter import load_text_reader
from inbedder.backbones.revision import record_revision
from inbedder.backbones.seq2seq import build_seq2seq_backbone
from inbedder.backbones.weights import LoadedModel, ResolvedModel, find_model, load_weights
from inbedder.errors import InbedderError, InputError, ModelError, is_out_of_memory
from inbedder.options import ModelOptions

if TYPE_CHECKING:
    from transformers import PretrainedConfig


MASK_LENGTH = 3
"""Default number of mask tokens after a prompt."""
_LOADING_LOCK = RLock()
"""Loads one model at a time: while transformers loads weights, it changes torch's default dtype and initialization everywhere."""


@dataclass(frozen=True)
class Family:
    """One kind of model."""

    model_class: Callable[[PretrainedConfig], Any]
    """Returns the transformers class that loads a model with the given configuration."""
    backbone: Callable[[LoadedModel, ModelOptions], tuple[Backbone, Settings]]
    """Builds the backbone and its settings from a loaded model and the user's options."""
    headless: bool = False
    """Whether it is loaded without its language-model head."""
    check: Callable[[ResolvedModel], None] = lambda _resolved: None
    """Rejects a model of another kind before its weights are read."""
    prepare: Callable[[Any, ResolvedModel], None] | None = None
    """Changes a model before an adapter is merged (``load_weights``)."""


def build_masked_backbone(loaded: LoadedModel, options: ModelOptions) -> tuple[Backbone, Settings]:
    """Build the backbone of a loaded masked LM, with ONNX Runtime for int8."""
    is_encoder = loaded.adapter is None and loaded.settings == Settings() and not _list_kinds_of_class(loaded.model.config)
    if is_encoder and loaded.untrained and options.backbone is None:
        raise ModelError(
            f"{loaded.base.name} is an encoder without a language-model head, and its files do not say how its vectors are read. "
            "Load it as an embedding model, with the pooling of its card: backbone='embedding', pooling='cls' for SimCSE. "
            "Or read its mask tokens: backbone='masked'."
        )
    mask_length = loaded.settings.mask_length or MASK_LENGTH
    backbone: MaskedBackbone
    if loaded.text_reader is not None:
        if options.is_onnx:
            raise ModelError(f"{options.model} reads texts by its base, which has no int8 graph. Leave backbone out.")
        backbone = LateInteractionBackbone(loaded.model, loaded.tokenizer, loaded.text_reader.model, mask_length)
    elif options.is_onnx:
        from inbedder.backbones.onnx import OnnxMaskedBackbone

        backbone = OnnxMaskedBackbone(loaded.model, loaded.tokenizer, mask_length)
    else:
        backbone = MaskedBackbone(loaded.model, loaded.tokenizer, mask_length)
    return backbone, loaded.settings


def prepare_masked(model: Any, resolved: ResolvedModel) -> None:
    """Add the gate of late interaction, and its language filter; leave other masked LMs unchanged."""
    if not resolved.settings.late_interaction:
        return
    if resolved.adapter is None:
        raise ModelError(
            "late_interaction is for adapters, whose base reads the texts. "
            f"Remove it from {SETTINGS_FILE} of {resolved.base.name}."
        )
    add_gate(model)
    if resolved.settings.language_directions:
        add_language_filter(model, resolved.settings.language_directions)


def choose_decoder_class(config: PretrainedConfig) -> Any:
    """Choose the class that loads a causal LM; one that also sees, such as Qwen-VL, reads texts with its language part."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import modeling_auto

    causal_models, vision_models = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )
    is_vision_model = config.model_type in vision_models and config.model_type not in causal_models
    return AutoModelForImageTextToText if is_vision_model else AutoModelForCausalLM


def choose_masked_class(config: PretrainedConfig) -> Any:
    """Choose the class that loads a masked LM: the own one of bundled models, or transformers'."""
    if isinstance(config, BertConfig):
        return BertForMaskedLM
    from transformers import AutoModelForMaskedLM

    return AutoModelForMaskedLM


def choose_seq2seq_class(_config: PretrainedConfig) -> Any:
    """Return the class that loads an encoder-decoder."""
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM


FAMILIES = {
    "causal": Family(choose_decoder_class, build_causal_backbone),
    "masked": Family(choose_masked_class, build_masked_backbone, prepare=prepare_masked),
    "seq2seq": Family(choose_seq2seq_class, build_seq2seq_backbone),
    "embedding": Family(choose_encoder_class, build_embedding_backbone, headless=True, check=reject_answering),
}


@cache
def _map_language_models() -> dict[str, tuple[Mapping[str, Any], tuple[str, ...]]]:
    """Map each kind to transformers' classes by model type, and to how the names of other classes (a repository's own) end."""
    from transformers.models.auto import modeling_auto

    causal_models = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES | modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return {
        "causal": (causal_models, ("ForCausalLM", "LMHeadModel")),
        "masked": (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, ("ForMaskedLM",)),
    }


def list_kinds(config: PretrainedConfig) -> list[str]:
    """List the kinds that a configuration's class can be loaded as, the trained one first; empty without a known head.

    The class determines the kind: FlaubertWithLMHeadModel is a masked LM. XLMWithLMHeadModel is both, and its ``causal`` decides.
    """
    if isinstance(config, BertConfig):
        return ["masked"]
    if getattr(config, "is_encoder_decoder", False):
        return ["seq2seq"]
    if kinds := _list_kinds_of_class(config):
        return sorted(kinds, key=lambda kind: (kind == "causal") != getattr(config, "causal", False))
    return [kind for kind in ("masked", "causal") if config.model_type in _map_language_models()[kind][0]][:1]


def _list_kinds_of_class(config: PretrainedConfig) -> list[str]:
    """List the kinds of the class that a configuration names; empty for a class without a known head."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    kinds = [kind for kind, (classes, _) in _map_language_models().items() if architecture == classes.get(config.model_type)]
    return kinds or [kind for kind, (_, endings) in _map_language_models().items() if architecture.endswith(endings)]


def detect_kind(config: PretrainedConfig) -> str:
    """Detect "causal", "masked" or "seq2seq" from a configuration; reject a model without a language-model head."""
    if kinds := list_kinds(config):
        return kinds[0]
    architecture = (getattr(config, "architectures", None) or ["unknown architecture"])[0]
    raise ModelError(
        f"{config.model_type!r} ({architecture}) is not a causal, masked or encoder-decoder language model. Choose a model with "
        "a language-model head, or name the kind: InBedder(..., backbone='masked' or 'embedding')."
    )


def load_backbone(options: ModelOptions) -> tuple[Backbone, Settings]:
    """Load a model for embedding and answering.

    Args:
        options: The model and its loading options.

    Returns:
        The backbone of the model's kind, and the settings saved with its weights.

    Raises:
        InputError: If an option has an unknown value.
        ModelError: If the model is not found, its kind is unknown, an option does not fit it, or its files are damaged.
    """
    if sys.flags.optimize > 1:
        raise ModelError("Python runs with -OO (PYTHONOPTIMIZE=2), without the docstrings that transformers reads.")
    try:
        with _LOADING_LOCK:
            return _load_backbone(options)
    except (InbedderError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a configuration that fits nothing can raise anything, and a tokenizer a panic of Rust
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        raise ModelError(f"{options.model} cannot be used ({reason}). Check its files, or download them again.") from error


def _load_backbone(options: ModelOptions) -> tuple[Backbone, Settings]:
    files = open_model(options.model, options.revision)
    has_learned_tokens = files.find(LEARNED_TOKENS_CONFIG) is not None
    if has_learned_tokens and options.kind not in (None, "embedding"):
        raise ModelError(f"{files.name} is an LLM2Vec-Gen, whose vectors are states of learned tokens. Leave out backbone.")
    if options.kind and options.kind.startswith("vllm"):
        from inbedder.backbones.vllm import build_vllm_backbone

        resolved = find_model(files, options)
        _check_safetensors(resolved)
        engine_backbone = build_vllm_backbone(resolved, detect_kind(resolved.config), options)
        record_revision(engine_backbone, resolved.files)
        return engine_backbone, resolved.settings
    is_sentence_model = options.backbone is None and (has_learned_tokens or _is_sentence_model(files))
    loaded = load_model(files, replace(options, backbone="embedding") if is_sentence_model else options, reads_own=True)
    if options.quantization is not None:
        check_quantized_layers(loaded.model, loaded.base.name)
    if not options.is_onnx:  # that graph is made from torch's own layers
        prepack(loaded.model)
        if loaded.text_reader is not None:
            prepack(loaded.text_reader.model)
    backbone, settings = FAMILIES[loaded.kind].backbone(loaded, options)
    backbone.adapter, backbone.answers = loaded.adapter, backbone.answers and not loaded.untrained
    check_reading(backbone, options.model)
    record_revision(backbone, loaded.files)
    return backbone, settings


def _check_safetensors(resolved: ResolvedModel) -> None:
    """Reject pickled weights, which vLLM would read by itself."""
    is_pickled = bool(find_pickled_weights(resolved.base))
    if is_pickled or (resolved.adapter is not None and find_adapter_weights(Path(resolved.adapter)).suffix == ".bin"):
        name = resolved.adapter if resolved.adapter is not None and not is_pickled else resolved.base.name
        raise ModelError(
            f"{name} has pickled weights only, and under vLLM inbedder loads safetensors only. Convert it once: inbedder models "
            f"convert {name} -o FOLDER"
        )


def _is_sentence_model(files: ModelFiles) -> bool:
    """Return whether a model is a sentence-transformers checkpoint that inbedder did not fine-tune to answer."""
    if files.find(MODULES_FILE) is None:
        return False
    return files.find(SETTINGS_FILE) is None or read_settings(files).backbone == "embedding"


def load_model(files: ModelFiles, options: ModelOptions, *, reads_own: bool = False) -> LoadedModel:
    """Load an opened model, merging an adapter unless its base is quantized; errors are those of ``load_backbone``."""
    resolved = find_model(files, options, reads_own=reads_own)
    kind = options.kind or detect_kind(resolved.config)
    family = FAMILIES.get(kind)
    if family is None:
        raise InputError(f"Unknown backbone {kind!r}. Choose one of: {', '.join(FAMILIES)}, onnx, vllm.")
    family.check(resolved)
    _check_kind(kind, resolved)
    load = partial(load_weights, kind=kind, model_class=family.model_class(resolved.config), options=options)
    loaded = load(resolved, headless=family.headless, prepare=family.prepare)
    if resolved.settings.question_adapter or resolved.settings.late_interaction:
        return replace(loaded, text_reader=load_text_reader(resolved, loaded, load))
    return loaded


def _check_kind(kind: str, resolved: ResolvedModel) -> None:
    """Reject a language model whose class is of another kind; a model of unknown kind is accepted."""
    kinds = list_kinds(resolved.config)
    if kinds and kind not in (*kinds, "embedding"):
        raise ModelError(f"{resolved.base.name} is a {kinds[0]} LM and cannot be loaded as a {kind} one. Leave out backbone.")
