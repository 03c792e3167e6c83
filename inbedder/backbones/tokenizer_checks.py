"""Checks of a configuration's values, and of a tokenizer: that it fits its model and makes no text much longer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

SIZES = ("num_attention_heads", "num_key_value_heads", "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size")
"""Settings of a configuration that are at least 1."""
SWITCHES = ("output_hidden_states", "output_attentions", "use_cache", "tie_word_embeddings")
"""Settings that are true or false."""
MAX_TEXT_GROWTH = 100
"""Maximum of how many times as long the replacements of a tokenizer make a text."""


def check_config(config: PretrainedConfig, base: str) -> None:
    """Reject sizes below 1, and switches that are neither on nor off."""
    for part in (config, config.get_text_config()):
        for name in SIZES:
            if isinstance(value := getattr(part, name, None), int) and value < 1:
                raise ModelError(f"{name} in config.json of {base} is {value}; it must be at least 1. Correct it.")
        for name in SWITCHES:
            if not isinstance(value := getattr(part, name, None), bool | None):
                raise ModelError(f"{name} in config.json of {base} is {value!r}; it must be true or false. Correct it.")


def check_tokenizer(
    tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, base: str, learned_ids: Sequence[int] = ()
) -> None:
    """Reject a tokenizer without words, with more tokens than the model, or whose replacements make a text much longer."""
    special = set(tokenizer.all_special_ids) - set(learned_ids)
    if len(tokenizer) <= len(special):
        raise ModelError(f"The tokenizer of {base} has no words: tokenizer.json is missing or empty. Download the model again.")
    backend = tokenizer.backend_tokenizer if tokenizer.is_fast else None
    words = range(tokenizer.vocab_size) if backend is None else backend.get_vocab(with_added_tokens=False).values()
    size = getattr(config.get_text_config(), "vocab_size", None)
    if size is not None and max(chain(words, special)) >= size:
        raise ModelError(
            f"The tokenizer of {base} has {len(tokenizer)} tokens and vocab_size in its config.json is {size}: the files belong "
            "to two models. Download the model again."
        )
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
