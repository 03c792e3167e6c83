"""Defaults of encoding options, from the model's settings and its family."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any

from inbedder.arguments import check_positive_integer
from inbedder.backbones.hub import Settings
from inbedder.backbones.protocol import Backbone, check_pooling, needs_decoding
from inbedder.errors import InputError, TemplateError
from inbedder.options import NO_SECOND_MODEL, EncodingOptions, Reencoding, Sampling
from inbedder.prompting.chat_templates import resolve_chat_template
from inbedder.prompting.templates import DEFAULT_TEMPLATE, PromptTemplate, get_template

logger = logging.getLogger(__name__)


def resolve_encoding(options: EncodingOptions, backbone: Backbone, settings: Settings, name: str) -> EncodingOptions:
    """Fill in encoding options.

    Args:
        options: The requested options.
        backbone: The model.
        settings: The settings that training stored with the weights.
        name: The model's name, for messages.

    Returns:
        The options with every default filled in.

    Raises:
        InputError: If an option does not apply to the model.
        ModelError: If the model lacks the pooling or layer.
        TemplateError: If the model lacks the chat template.
    """
    pooling, layer = check_pooling(backbone, options.pooling or settings.pooling, options.layer)
    if options.temperature and not needs_decoding(backbone, pooling):
        raise InputError(f"{pooling!r} of a {backbone.kind} model reads no decoded answer. Leave temperature at 0.")
    if options.mask_length is not None and backbone.kind != "masked":
        raise InputError(f"mask_length is for masked LMs, and {name} is a {backbone.kind} model. Leave it out.")
    if not options.constrained_decoding and backbone.kind != "masked":
        raise InputError(f"constrained_decoding is for masked LMs, and {name} is a {backbone.kind} model. Leave it out.")
    template = _choose_template(options.template, backbone, settings, name)
    is_bare = template.without_template or backbone.without_template or settings.prompts is not None
    max_new_tokens = options.max_new_tokens or settings.max_new_tokens or Sampling.max_new_tokens
    beside = _choose_first(options.beside, settings.beside, NO_SECOND_MODEL)
    check_truncate_dim(options.truncate_dim, beside, backbone, settings, name)
    return replace(
        options,
        pooling=pooling,
        layer=layer,
        template=replace(template, without_template=is_bare),
        max_length=_limit_prompt_length(options.max_length, max_new_tokens, backbone),
        max_new_tokens=max_new_tokens,
        mask_length=_choose_first(options.mask_length, settings.mask_length, backbone.mask_length)
        if backbone.mask_length
        else None,
        min_confidence=_choose_first(options.min_confidence, settings.min_confidence, 0.0),
        reencoding=(options.reencoding or Reencoding()) if pooling == "re-enc" else None,
        subtract_instruction=_choose_first(options.subtract_instruction, settings.subtract_instruction, False),
        beside=beside,
        normalize_embeddings=_choose_first(options.normalize_embeddings, settings.normalize, False),
    )


def _choose_template(requested: str | PromptTemplate | None, backbone: Backbone, settings: Settings, name: str) -> PromptTemplate:
    """Choose the requested template, that of training, the model's own chat template, or the default, in this order.

    Warn of another template if the model has a chat template and was not trained for the other.
    """
    can_chat = settings.template is None and backbone.continues_prompt and bool(backbone.tokenizer.chat_template)
    if requested is None and can_chat:
        try:
            return resolve_chat_template(get_template("chat"), backbone.tokenizer)
        except TemplateError as error:
            logger.warning("%s The template %r is used.", error, DEFAULT_TEMPLATE)
            return get_template()
    template = get_template(requested if requested is not None else settings.template)
    if template.system is not None and not backbone.continues_prompt:
        raise InputError(
            f"template={template.name!r} is for causal LMs, and {name} is a {backbone.kind} model. Choose another one."
        )
    if template.system is None and can_chat:
        _warn_of_chat_template(name, template.name)
    return resolve_chat_template(template, backbone.tokenizer)


_models_warned_of: set[str] = set()
"""Models whose chat template a warning has named."""


def _warn_of_chat_template(name: str, template: str) -> None:
    """Warn once per model."""
    if name in _models_warned_of:
        return
    _models_warned_of.add(name)
    message = "%s has a chat template, and its prompts use the template %r. If it was trained to chat, pass template='chat'."
    logger.warning(message, name, template)


def _choose_first(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next(value for value in values if value is not None)


def check_truncate_dim(truncate_dim: int | None, beside: str | None, backbone: Backbone, settings: Settings, name: str) -> None:
    """Check a length to which vectors are cut, and warn once of one that the model was not trained for.

    Args:
        truncate_dim: The requested length; None keeps all numbers.
        beside: The second model's name.
        backbone: The model.
        settings: The settings that training stored with the weights.
        name: The model's name, for messages.

    Raises:
        InputError: If the length is below 1, or the vectors are those of two models.
    """
    if check_positive_integer("truncate_dim", truncate_dim) is None:
        return
    assert truncate_dim is not None
    if beside != NO_SECOND_MODEL:
        raise InputError(
            f"truncate_dim cannot cut the vectors of {name}, which end with those of a second model, {beside}. Leave it out, or "
            "load the model with beside='none'."
        )
    config = getattr(backbone.model, "config", None)
    trained_dims = settings.matryoshka_dims or getattr(config, "matryoshka_dimensions", None) or ()
    if trained_dims and truncate_dim not in trained_dims:
        _warn_of_untrained_dim(name, truncate_dim, ", ".join(str(trained_dim) for trained_dim in trained_dims))


@lru_cache(maxsize=256)
def _warn_of_untrained_dim(name: str, truncate_dim: int, trained_dims: str) -> None:
    """Warn once per model and length."""
    logger.warning("%s was trained for vectors of %s numbers, not for truncate_dim=%d.", name, trained_dims, truncate_dim)


def _limit_prompt_length(max_length: int, max_new_tokens: int, backbone: Backbone) -> int:
    """Return the maximum prompt length, in tokens, that leaves positions for the answer."""
    limit = backbone.position_limit
    if limit is None:
        return max_length
    answer_length = max_new_tokens if backbone.continues_prompt else 0
    if answer_length >= limit:
        raise InputError(f"max_new_tokens={answer_length} leaves no room for a prompt: the model takes {limit} positions.")
    return min(max_length, limit - answer_length)


def with_mask_options(backbone: Backbone, encoding: EncodingOptions) -> Backbone:
    """Return a masked LM with another number of mask tokens or another decoding, which shares the weights."""
    changes = {"mask_length": encoding.mask_length, "constrained_decoding": encoding.constrained_decoding}
    if backbone.kind != "masked" or all(getattr(backbone, name) == value for name, value in changes.items()):
        return backbone
    variant = copy(backbone)
    for name, value in changes.items():
        setattr(variant, name, value)
    return variant


def uses_default_reading(encoding: EncodingOptions, backbone: Backbone, settings: Settings) -> bool:
    """Whether vectors are read as in training: with the default pooling, at the last layer, and without filtered words."""
    is_last = encoding.layer in (-1, backbone.num_layers)
    return encoding.pooling == (settings.pooling or backbone.poolings[0]) and is_last and not encoding.filter_words
