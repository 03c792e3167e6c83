"""sentence-transformers' keywords of ``encode``: those that apply are supported, and all others raise an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from inbedder.arguments import check_device
from inbedder.encoding.protocols import Encoder
from inbedder.errors import InputError, format_names, format_value
from inbedder.prompting.templates import DefaultInstructions, PromptTemplate, check_texts

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
MULTI_PROCESS = (
    "encode uses all cores without processes. Pass several GPUs as device=['cuda:0', 'cuda:1'], and for several machines use "
    "inbedder.distributed."
)
ALTERNATIVES = {
    "output_value": "There is one vector per text.",
    "pool": MULTI_PROCESS,
    "chunk_size": MULTI_PROCESS,
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
        kwargs: sentence-transformers' keywords. ``device`` moves the model, as in sentence-transformers; several devices read
            parts of the texts at the same time, each with a copy of the weights.
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
    device, question = kwargs.get("device"), _choose_instruction(model.template, defaults, instruction, kwargs)
    devices = [str(check_device("device", each)) for each in (device if isinstance(device, list | tuple) else [device]) if each]
    devices = list(dict.fromkeys(devices))
    if len(devices) == 1:
        model.to(devices[0])
    if len(devices) > 1 and not isinstance(inputs[0], str):
        vectors = _encode_on_devices(model, devices, inputs[0], question, options)
    else:
        vectors = model.encode(inputs[0], question, **options)
    if kwargs.get("convert_to_tensor"):
        return torch.from_numpy(vectors).to(model.device)
    if kwargs.get("convert_to_numpy", True):
        return vectors
    tensor = torch.from_numpy(vectors).to(model.device)
    return tensor if tensor.ndim == 1 else list(tensor)


def _encode_on_devices(model: Encoder, devices: Sequence[str], texts: Any, instruction: Any, options: Mapping[str, Any]) -> Any:
    """Embed consecutive parts of the texts, one part per device, at the same time."""
    rows, instructions = check_texts(texts, instruction)
    requested = model.pipeline.requested.get_changed_options()
    load = cast("Callable[..., Encoder]", type(model))
    models = [model if device == str(model.device) else load(**{**requested, "device": device}) for device in devices]
    spans = [slice(len(rows) * part // len(models), len(rows) * (part + 1) // len(models)) for part in range(len(models))]
    questions = [instruction if instruction is None else instructions[span] for span in spans]
    parts = [partial(each.encode, rows[span]) for each, span in zip(models, spans, strict=True)]
    with ThreadPoolExecutor(len(models)) as executor:
        return np.concatenate(list(executor.map(lambda encode, question: encode(question, **options), parts, questions)))


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
