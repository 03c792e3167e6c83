"""Weights in PyTorch's pickled files, such as ``pytorch_model.bin``, read by torch's restricted loader only.

A pickle can run code. ``torch.load(weights_only=True)`` builds nothing but tensors and plain containers, and rejects a file that
asks for more before anything of it runs. In torch before 2.10 a crafted file could corrupt the memory of this loader
(CVE-2026-24747; before 2.6 it could run code, CVE-2025-32434), so pickled files need torch 2.10.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from inbedder.errors import ModelError

MIN_TORCH_VERSION = "2.10"
"""The first version of torch whose restricted loader has no known flaw."""


def read_pickled_weights(paths: Sequence[Path], entry: str | None = None) -> dict[str, Tensor]:
    """Read the tensors of pickled files, on the CPU and from the disk as they are used; reject files with more than tensors.

    Args:
        paths: The files.
        entry: The key of each file's table under which its tensors are; None if the table is that of the tensors.

    Returns:
        The tensors by name.

    Raises:
        ModelError: If a file is damaged, or is no table of tensors.
    """
    tensors: dict[str, Tensor] = {}
    for path in paths:
        tensors |= _read_file(path, entry)
    return tensors


def _read_file(path: Path, entry: str | None) -> dict[str, Tensor]:
    if TorchVersion(torch.__version__) < MIN_TORCH_VERSION:
        raise ModelError(
            f"{path} is a pickle, and the loader of torch {torch.__version__} can be attacked by one (CVE-2026-24747). Update "
            f"torch to {MIN_TORCH_VERSION} or later, or choose a checkpoint in safetensors."
        )
    with path.open("rb") as file:
        start = file.read(32)
    if start.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a git-lfs pointer, not the weights. Run git lfs pull in its folder, or download it again.")
    is_zip = start.startswith(b"PK\x03\x04")  # only this form can be read from the disk as it is used
    if is_zip:
        _check_stored(path)
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        tensors = tensors if entry is None else tensors[entry]
    except Exception as error:  # a damaged file can raise anything
        if isinstance(error, MemoryError):
            raise
        raise ModelError(
            f"torch does not read {path}: {_describe_refusal(error)} inbedder reads a pickle only through torch's restricted "
            "loader, which builds tensors and runs no code. The file is damaged, or holds more than weights: download it again, "
            "or choose a checkpoint in safetensors."
        ) from error
    if not isinstance(tensors, dict) or not all(_is_entry(name, tensor) for name, tensor in tensors.items()):
        raise ModelError(
            f"{path} is not a table of tensors by name, so it is no model's weights. Choose the file that save_pretrained wrote."
        )
    return dict(tensors)


def _check_stored(path: Path) -> None:
    """Reject a compressed zip file, whose bytes torch and transformers would map as if they were the values."""
    try:
        with ZipFile(path) as archive:
            is_stored = all(entry.compress_type == ZIP_STORED for entry in archive.infolist())
    except BadZipFile as error:
        raise ModelError(f"{path} is damaged ({error}). Download it again.") from error
    if not is_stored:
        raise ModelError(f"{path} is compressed, and torch stores weights uncompressed. Download the original file.")


def _is_entry(name: object, tensor: object) -> bool:
    """Return whether an entry is a name and a tensor whose values are all in the file."""
    if not isinstance(name, str) or not isinstance(tensor, Tensor):
        return False
    return tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.nbytes <= tensor.untyped_storage().nbytes()


def _describe_refusal(error: Exception) -> str:
    """Describe why torch rejected a file, without its advice to turn the restriction off."""
    reason = " ".join(str(error).split()) or type(error).__name__
    match = re.search(r"WeightsUnpickler error: (.*?)(?: Please use | Check the documentation |$)", reason)
    return f"{(match[1] if match else reason.split(' In PyTorch ')[0])[:300].rsplit('. ', 1)[0].rstrip('. ')}."
