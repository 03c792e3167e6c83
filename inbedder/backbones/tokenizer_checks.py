"""Checks of a tokenizer: that it fits its model, and that no text becomes much longer by it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

MAX_TEXT_GROWTH = 100
"""Maximum of how many times as long the replacements of a tokenizer make a text."""


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, base: str) -> None:
    """Refuse a tokenizer without words, with more tokens than the model, or whose replacements make a text much longer."""
    special = set(tokenizer.all_special_ids)
    if len(tokenizer) <= len(special):
        raise ModelError(f"The tokenizer of {base} has no words: tokenizer.json is missing or empty. Download the model again.")
    size = getattr(config.get_text_config(), "vocab_size", None)
    if size is not None and max(*tokenizer.get_vocab().values(), *special) >= size:
        raise ModelError(
            f"The tokenizer of {base} has {len(tokenizer)} tokens and vocab_size in its config.json is {size}: the files belong "
            "to two models. Download the model again."
        )
    backend = tokenizer.backend_tokenizer if tokenizer.is_fast else None
    parts = [] if backend is None else [backend.normalizer, backend.pre_tokenizer, backend.decoder]
    growth = math.prod(_compute_growth(json.loads(part.__getstate__())) for part in parts if part is not None)
    if growth > MAX_TEXT_GROWTH:
        raise ModelError(f"The replacements in tokenizer.json of {base} make a text {growth:,.0f} times as long. It is not used.")


def _compute_growth(settings: Any) -> float:
    """Compute how many times as long the replacements of a tokenizer's part can make a text."""
    if isinstance(settings, list):
        return math.prod(map(_compute_growth, settings))
    if not isinstance(settings, dict):
        return 1.0
    if settings.get("type") == "Replace":
        return max(1.0, len(settings["content"]) / max(1, len(settings["pattern"].get("String", ""))))
    return math.prod(map(_compute_growth, settings.values()))
