"""A check of what a configuration asks for against the weights in its files, before memory is allocated for it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from inbedder.backbones.file_checks import INDEX, WEIGHTS
from inbedder.backbones.hub import ModelFiles, read_json_object
from inbedder.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MAX_PARAMETERS_PER_BYTE = 16
"""Maximum number of parameters that a byte of weights holds: four in 2-bit weights, and room for a head that the file lacks."""
MIN_REFUSED_LAYERS, MIN_REFUSED_PARAMETERS = 1000, 100_000_000
"""Smaller models are loaded whatever their weights hold, and then rejected by the name of the tensor that does not fit."""
_NUMBERS_OF_LAYERS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")


def check_size(
    files: ModelFiles,
    config: PretrainedConfig,
    model_class: Any,
    *,
    pickled: Mapping[str, Tensor] | None = None,
    trust_remote_code: bool,
) -> None:
    """Reject a configuration with more layers or parameters than its weights, on disk or ``pickled``, can fill."""
    measured = _measure_weights(files) if pickled is None else _measure_tensors(pickled)
    if measured is None:
        return
    num_tensors, num_bytes = measured
    counts = {key: getattr(part, key, 0) for part in (config, config.get_text_config()) for key in _NUMBERS_OF_LAYERS}
    for key, count in counts.items():
        if isinstance(count, int) and count > max(MIN_REFUSED_LAYERS, num_tensors):
            raise _make_size_error(files.name, f"{count:,} layers ({key})", f"{num_tensors:,} tensors")
    from transformers.initialization import no_init_weights

    try:
        with no_init_weights(), torch.device("meta"):
            model = model_class.from_config(deepcopy(config), trust_remote_code=trust_remote_code)
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
    except Exception:  # a configuration that fits nothing can raise anything, and loading it will report the reason
        return
    if num_parameters > max(MIN_REFUSED_PARAMETERS, MAX_PARAMETERS_PER_BYTE * num_bytes):
        raise _make_size_error(files.name, f"{num_parameters:,} parameters", f"{num_bytes:,} bytes")


def _measure_weights(files: ModelFiles) -> tuple[int, int] | None:
    """Measure the number of tensors and bytes in a model's weights; None if its files do not show them."""
    if (path := files.find(WEIGHTS)) is not None:
        try:
            with safe_open(path, "pt") as tensors:
                return len(tensors.keys()), path.stat().st_size
        except (SafetensorError, OSError):  # loading it will name the damage
            return None
    if (path := files.find(INDEX)) is None:
        return None
    table = read_json_object(path)
    shards = {path.parent / str(shard) for shard in table["weight_map"].values()}
    if files.folder is not None:
        return len(table["weight_map"]), sum(shard.stat().st_size for shard in shards)
    num_bytes = table["metadata"].get("total_size")
    return (len(table["weight_map"]), num_bytes) if isinstance(num_bytes, int) else None


def _measure_tensors(tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """Measure the number of tensors and the bytes of the memory that they share."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors.values()}
    return len(tensors), sum(storages.values())


def _make_size_error(name: str, demand: str, supply: str) -> ModelError:
    return ModelError(
        f"config.json of {name} asks for {demand}, and its weights have only {supply}: the files belong to two models, or were "
        "tampered with. Download the model again."
    )
