"""Conversion of a checkpoint's pickled weights to safetensors, with its other files unchanged."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from inbedder.backbones.file_checks import (
    ADAPTER_WEIGHTS,
    INDEX,
    PICKLED_ADAPTER_WEIGHTS,
    WEIGHTS,
    find_pickled_weights,
)
from inbedder.backbones.hub import ModelFiles
from inbedder.backbones.pickled_weights import read_pickled_weights
from inbedder.backbones.sentence_modules import find_checkpoint_folder, list_module_paths
from inbedder.errors import InputError, ModelError, format_value
from inbedder.io.files import atomic_folder
from inbedder.models.bundled import resolve_name
from inbedder.models.checksums import CHECKSUMS, check_checksums, write_checksums
from inbedder.runtime.user_paths import expand_path

_SKIPPED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".ot", ".gguf", ".onnx")
"""Weights in other formats, and the states of trainings, are not copied."""


def convert_to_safetensors(name: str, output: str | os.PathLike[str], revision: str | None = None) -> Path:
    """Write a checkpoint with safetensors in place of pickled weights, which gives the same vectors.

    Args:
        name: Folder or hub id of a model, an adapter or a sentence-transformers checkpoint.
        output: A new or empty folder.
        revision: Branch, tag or commit on the hub.

    Returns:
        The folder.

    Raises:
        InputError: If the folder is not empty or not writable, the disk is full, or the model has no pickled weights.
        ModelError: If the model is not found, or one of its files is damaged or holds more than tensors.
    """
    target = expand_path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{format_value(str(target))} is not empty. Choose a new folder.")
    if Path(name).is_file():
        raise ModelError(f"{name} is a file. Give the folder with config.json and the weights.")
    folder = find_checkpoint_folder(resolve_name(name), revision)
    if target.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{format_value(str(target))} is in the folder of the model. Choose a folder outside it.")
    check_checksums(ModelFiles(str(folder)).find)
    module_paths = list_module_paths(folder)
    for path in (folder / path for path in module_paths):
        if path.is_symlink() or path.is_file():
            raise ModelError(f"{path}, which modules.json names, is not a folder of the model. Download the model again.")
    pickles = {path: _find_pickles(folder / path) for path in (Path(), *module_paths)}
    if not any(pickles.values()):
        raise InputError(f"{format_value(name)} has no pickled weights, so there is nothing to convert. Load it as it is.")
    with atomic_folder(target) as temporary:
        for path, files in pickles.items():
            (temporary / path).mkdir(parents=True, exist_ok=True)
            _copy_other_files(folder / path, temporary / path)
            _write_safetensors(files, temporary / path)
        write_checksums(temporary)
    return target


def _find_pickles(folder: Path) -> list[Path]:
    """Find the pickled files that are read from a folder: an adapter's, or a model's."""
    adapter = folder / PICKLED_ADAPTER_WEIGHTS
    if not folder.is_dir():  # a module without settings, such as Normalize
        return []
    if adapter.is_file() and not (folder / ADAPTER_WEIGHTS).is_file():
        return [adapter]
    return find_pickled_weights(ModelFiles(str(folder)))


def _copy_other_files(folder: Path, target: Path) -> None:
    """Copy a folder's files except weights in other formats; a module without weights may have no folder."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_index = path.name.endswith(".bin.index.json")
        if path.is_file() and path.suffix not in _SKIPPED_SUFFIXES and path.name != CHECKSUMS and not is_index:
            shutil.copyfile(path, target / path.name)


def _write_safetensors(pickles: list[Path], folder: Path) -> None:
    """Write one file of safetensors for each pickled file, and an index if there are several."""
    table: dict[str, str] = {}
    num_bytes = 0
    for number, pickled_file in enumerate(pickles, 1):
        file = ADAPTER_WEIGHTS if pickled_file.name == PICKLED_ADAPTER_WEIGHTS else WEIGHTS
        file = file if len(pickles) == 1 else f"model-{number:05}-of-{len(pickles):05}.safetensors"
        tensors = _copy_shared_tensors(read_pickled_weights([pickled_file]))
        try:
            save_file(tensors, folder / file, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(errno.EIO, str(error)) from error
        table |= dict.fromkeys(tensors, file)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
    if len(pickles) > 1:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": table}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _copy_shared_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give each tensor memory of its own, as safetensors requires; tied weights are written under each of their names."""
    addresses: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        is_whole = tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()
        separate[name] = tensor if is_whole and address not in addresses else tensor.clone()
        addresses.add(address)
    return {name: tensor.contiguous() for name, tensor in separate.items()}
