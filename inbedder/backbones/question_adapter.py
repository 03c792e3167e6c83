"""Adapters of the question: a causal LM's adapter applies to the question's and the answer's tokens only.

The adapter's base reads the text, which comes first, so a text's keys and values are the base's. They stay valid when the adapter
is trained again, and serve every adapter of that base. Memory: the adapter is merged into a second copy of the weights it
changes; all other weights are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from inbedder.backbones.hub import Settings
from inbedder.backbones.kv_cache import has_full_cache
from inbedder.backbones.padding_check import is_padding_safe
from inbedder.backbones.revision import WeightFiles
from inbedder.backbones.weights import LoadedModel, ResolvedModel
from inbedder.errors import ModelError


def can_read_texts_apart(model: Any) -> bool:
    """Return whether a causal LM can read a text without its adapter: its cache keeps all positions and it reads no padding."""
    return is_padding_safe(model, "causal") and has_full_cache(model)


def load_text_reader(resolved: ResolvedModel, loaded: LoadedModel, load: Callable[..., LoadedModel]) -> LoadedModel:
    """Load the base of an adapter of the question, with which it shares its unchanged weights; reject models without one."""
    if resolved.adapter is None:
        raise ModelError(
            f"{loaded.base.name} was trained with an adapter of the question, which must be a folder of its own. "
            "Load the folder that training wrote."
        )
    if getattr(loaded.model, "is_quantized", False):
        raise ModelError(f"{resolved.adapter} is an adapter of the question, which takes no quantization. Leave it out.")
    if resolved.settings.question_adapter and not (loaded.kind == "causal" and can_read_texts_apart(loaded.model)):
        raise ModelError(
            f"{resolved.adapter} is an adapter of the question, and {resolved.config.model_type} models cannot read the text "
            "without it. Train an adapter of all tokens (lora.tokens: all)."
        )
    files = WeightFiles.of(resolved.base, None, modules=False)
    reader = load(replace(resolved, adapter=None, settings=Settings(), files=files), headless=True)
    _share_equal_weights(reader.model, loaded.model)
    return reader


def _share_equal_weights(model: nn.Module, source: nn.Module) -> None:
    """Replace a model's parameters by the equal ones of another model of its class."""
    parameters = dict(source.named_parameters(remove_duplicate=False))
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if torch.equal(parameter, parameters[name]):
            path, _, leaf = name.rpartition(".")
            model.get_submodule(path)._parameters[leaf] = parameters[name]
