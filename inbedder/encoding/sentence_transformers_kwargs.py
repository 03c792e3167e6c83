"""sentence-transformers' keywords of ``encode``: those that apply are supported, and all others raise an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from inbedder.encoding.protocols import Encoder
from inbedder.errors import InputError, format_names, format_value
from inbedder.prompting.templates import DefaultInstructions, PromptTemplate

ENCODE_KWARGS = (
    "batch_size",
    "normalize_embeddings",
    "truncate_dim",
    "precision",
    "show_progress_bar",
    "filter_words",
    "return_answers",
)
"""Keywords of ``encode`` itself."""
SUPPORTED_KWARGS = ("sentences", "inputs", "prompt", "prompt_name", "convert_to_tensor", "convert_to_numpy", "device")
DEFAULT_KWARGS = {
    "output_value": "sentence_embedding",
    "pool": None,
    "chunk_size": None,
}
"""Keywords that are accepted with the value that ``encode`` uses anyway."""
ALTERNATIVES = {
    "output_value": "There is one vector per text.",
    "pool": "For several processes use inbedder.distributed.",
    "chunk_size": "For several processes use inbedder.distributed.",
    "task": "Pass an instruction.",
}
"""What to do instead, by unsupported keyword."""


def encode_with_kwargs(
    model: Encoder,
    defaults: DefaultInstructions,
    texts: Any,
    instruction: Any,
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """Embed texts for a caller who uses sentence-transformers' keywords.

    Args:
        model: The model.
        defaults: The model's instructions of calls without one.
        texts: The argument ``texts``; None if the caller uses ``sentences`` or ``inputs``.
        instruction: The argument ``instruction``; None if the caller uses ``prompt`` or ``prompt_name``.
        kwargs: sentence-transformers' keywords. ``device`` moves the model, as in sentence-transformers.
        options: Keyword arguments of ``encode``.

    Returns:
        The array of ``encode``; with ``convert_to_tensor`` a tensor on the model's device, and with only
        ``convert_to_numpy=False`` a list of tensors.

    Raises:
        InputError: If a keyword is not supported, or texts or instruction are passed twice.
    """
    _check_kwargs(kwargs)
    inputs = [value for value in (texts, kwargs.get("sentences"), kwargs.get("inputs")) if value is not None]
    if len(inputs) != 1:
        raise InputError(f"encode takes the texts once, but got them {len(inputs)} times. Pass only texts.")
    if kwargs.get("device") is not None:
        model.to(kwargs["device"])
    vectors = model.encode(inputs[0], _choose_instruction(model.template, defaults, instruction, kwargs), **options)
    if kwargs.get("convert_to_tensor"):
        return torch.from_numpy(vectors).to(model.device)
    if kwargs.get("convert_to_numpy", True):
        return vectors
    tensor = torch.from_numpy(vectors).to(model.device)
    return tensor if tensor.ndim == 1 else list(tensor)


def has_prompt(kwargs: Mapping[str, Any]) -> bool:
    """Whether keyword arguments of ``encode`` contain an instruction under one of sentence-transformers' names."""
    return kwargs.get("prompt") is not None or kwargs.get("prompt_name") is not None


def _choose_instruction(
    template: PromptTemplate, defaults: DefaultInstructions, instruction: Any, kwargs: Mapping[str, Any]
) -> Any:
    """Choose among an instruction, a prompt (perhaps rendered by the template) and the name of a prompt."""
    prompt, name = kwargs.get("prompt"), kwargs.get("prompt_name")
    if sum(value is not None for value in (instruction, prompt, name)) > 1:
        raise InputError("Pass only one of instruction, prompt and prompt_name.")
    if prompt is not None:
        rendered_instruction = template.extract_instruction(prompt) if isinstance(prompt, str) else None
        return prompt if rendered_instruction is None else rendered_instruction
    if name is None:
        return instruction
    if not isinstance(name, str):
        raise InputError(f"prompt_name must be a string, not {format_value(name)}.")
    sides = {"query": defaults.query, "document": defaults.document}
    return sides[name] if name in sides else f"@{name.removeprefix('@')}"


def _check_kwargs(kwargs: Mapping[str, Any]) -> None:
    for name, value in kwargs.items():
        if name in DEFAULT_KWARGS and value == DEFAULT_KWARGS[name]:
            continue
        if name in ALTERNATIVES:
            raise InputError(f"encode has no {name}={format_value(value)}. {ALTERNATIVES[name]}")
        if name not in SUPPORTED_KWARGS:
            names = format_names((*ENCODE_KWARGS, *SUPPORTED_KWARGS))
            raise InputError(f"encode has no keyword {format_value(name)}. It takes texts, instruction and: {names}.")
        if name == "device" and isinstance(value, (list, tuple)):
            raise InputError("encode uses one device. For several use inbedder.distributed.")
