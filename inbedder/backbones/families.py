"""The families of models, one row each: what loads them, and what makes a backbone of them.

A checkpoint's family is read from its configuration's architecture, never from its name. Checkpoints of sentence-transformers are
embedding models; vLLM is no family but an engine for causal LMs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto import modeling_auto

from inbedder.backbones.causal import causal_backbone
from inbedder.backbones.embedding import embedding_backbone, encoder_class, refuse_answering
from inbedder.backbones.hub import MODULES_FILE, SETTINGS_FILE, Settings, hub_file, read_settings
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.onednn_linear import prepack
from inbedder.backbones.protocol import Backbone
from inbedder.backbones.revision import keep_revision
from inbedder.backbones.seq2seq import seq2seq_backbone
from inbedder.backbones.weights import Found, Loaded, find_model, load_weights
from inbedder.errors import ModelError
from inbedder.models.bundled import resolve_name
from inbedder.options import ModelOptions

if TYPE_CHECKING:
    from transformers import PretrainedConfig


MASK_LENGTH = 3
"""Masks behind a prompt where neither the user nor the model's settings say."""


@dataclass(frozen=True)
class Family:
    """One kind of model."""

    model_class: Callable[[PretrainedConfig], Any]
    """From a configuration to the class of transformers that loads such a model."""
    backbone: Callable[[Loaded, ModelOptions], tuple[Backbone, Settings]]
    """From a loaded model, and what the user asked for, to a backbone and what it wants to be asked."""
    headless: bool = False
    """Whether it is loaded without its language-model head."""
    check: Callable[[Found, ModelOptions], None] = lambda _found, _options: None
    """Refuses, before any weight is read, a model that is none of this kind."""


def masked_backbone(loaded: Loaded, options: ModelOptions) -> tuple[Backbone, Settings]:
    """The backbone of a loaded masked LM, through ONNX Runtime for int8."""
    apart = loaded.settings.late_interaction
    make: type[MaskedBackbone] = LateInteractionBackbone if apart else MaskedBackbone
    if options.is_onnx:
        from inbedder.backbones.onnx import OnnxLateInteractionBackbone, OnnxMaskedBackbone

        make = OnnxLateInteractionBackbone if apart else OnnxMaskedBackbone
    backbone = make(loaded.model, loaded.tokenizer, loaded.settings.mask_length or MASK_LENGTH)
    backbone.answers = not loaded.untrained
    return backbone, loaded.settings


FAMILIES = {
    "causal": Family(lambda _config: AutoModelForCausalLM, causal_backbone),
    "masked": Family(lambda _config: AutoModelForMaskedLM, masked_backbone),
    "seq2seq": Family(lambda _config: AutoModelForSeq2SeqLM, seq2seq_backbone),
    "embedding": Family(encoder_class, embedding_backbone, headless=True, check=refuse_answering),
}


def model_kind(config: PretrainedConfig) -> str:
    """Tell "causal", "masked" or "seq2seq" from a configuration, never a name; refuse a model without a language-model head."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq"
    if architecture.endswith("ForMaskedLM"):
        return "masked"
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    if config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    if config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "causal"
    raise ModelError(
        f"{config.model_type!r} ({architecture or 'no architecture named'}) is no causal, masked or encoder-decoder language "
        "model. Choose a model with a language-model head, or name the kind: InBedder(..., backbone='masked' or 'embedding')."
    )


def load_backbone(options: ModelOptions) -> tuple[Backbone, Settings]:
    """Load a model for embedding and answering.

    Args:
        options: The model and how it is loaded.

    Returns:
        The backbone of the model's kind, and what its training left beside the weights.

    Raises:
        ModelError: When the model is not found, of no known kind, or an option does not fit.
    """
    if options.kind and options.kind.startswith("vllm"):
        from inbedder.backbones.vllm import vllm_backbone

        resolved = find_model(options)
        engines = vllm_backbone(resolved, model_kind(resolved.config), options)
        keep_revision(engines, resolved.files)
        return engines, resolved.settings
    is_sentence_model = options.backbone is None and _is_sentence_model(options.model, options.revision)
    loaded = load_model(replace(options, backbone="embedding") if is_sentence_model else options)
    if not options.is_onnx:  # that graph is made from torch's own layers
        prepack(loaded.model)
    backbone, settings = FAMILIES[loaded.kind].backbone(loaded, options)
    backbone.adapter = loaded.adapter
    keep_revision(backbone, loaded.files)
    return backbone, settings


def _is_sentence_model(name: str, revision: str | None) -> bool:
    """Whether it is a checkpoint of sentence-transformers, and none that was fine-tuned here to answer."""
    name = resolve_name(name)
    if Path(name).is_file() or hub_file(name, MODULES_FILE, revision) is None:
        return False
    return hub_file(name, SETTINGS_FILE, revision) is None or read_settings(name, revision).backbone == "embedding"


def load_model(options: ModelOptions) -> Loaded:
    """Load weights and tokenizer; merge an adapter unless its base is quantized. Errors are those of ``load_backbone``."""
    resolved = find_model(options)
    kind = options.kind or model_kind(resolved.config)
    family = FAMILIES.get(kind)
    if family is None:
        raise ModelError(f"Unknown backbone {kind!r}. Choose one of: {', '.join(FAMILIES)}, onnx, vllm.")
    family.check(resolved, options)
    _check_kind(kind, resolved)
    return load_weights(resolved, kind, family.model_class(resolved.config), options, headless=family.headless)


def _check_kind(kind: str, resolved: Found) -> None:
    """Refuse to read a language model as one of another kind; whose kind is not known may be tried."""
    try:
        own = model_kind(resolved.config)
    except ModelError:
        return
    if kind != own and kind != "embedding":
        raise ModelError(f"{resolved.base} is a {own} LM and cannot be read as a {kind} one. Leave the backbone out.")
