"""Checks before training starts: packages, memory, disk space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from inbedder.backbones.weights import has_fast_bf16
from inbedder.errors import RecipeError

MEMORY_HINT = (
    "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, a lora section, "
    "quantization=nf4, or more processes with training.fsdp=true"
)
GIB = 2**30


def check_reporting(report_to: str | Sequence[str]) -> None:
    """Check that transformers has the integrations of a recipe, and that their packages are installed.

    Args:
        report_to: The recipe's ``training.report_to``.

    Raises:
        RecipeError: If an integration is unknown, or cannot be used here.
    """
    from transformers.integrations import get_reporting_integration_callbacks

    try:
        for callback in get_reporting_integration_callbacks(report_to):
            callback()
    except ValueError as error:  # its message lists the known names
        raise RecipeError(f"training.report_to: {error}") from error
    except Exception as error:  # packages can raise anything; transformers names the one that is missing
        raise RecipeError(f"training.report_to={report_to} cannot be used: {error}") from error


def count_processes() -> int:
    """Count the training processes that torchrun or accelerate launched."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def uses_bf16(setting: bool | None) -> bool:
    """Decide whether to train in bfloat16: by ``training.bf16``, or by the device's speed when that is None."""
    if setting is not None:
        return setting
    return has_fast_bf16(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def get_free_memory() -> float:
    """Get the free memory of the GPU, or of the machine without a GPU, in GiB."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0] / GIB
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 / GIB for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float("inf")


def check_disk_space(output: Path, model: nn.Module) -> None:
    """Check that the disk can hold three checkpoints: the last two and the result.

    Args:
        output: Folder of the run; it is created when missing.
        model: The model, with its adapters if any.

    Raises:
        RecipeError: If the folder cannot be created or the disk is too full.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(output).free
    except OSError as error:
        raise RecipeError(f"Cannot write to {output}: {error.strerror}. Choose another training.output.") from error
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    required = 3 * 12 * trained  # float32 weights and AdamW's two moments
    if free < required:
        raise RecipeError(
            f"{output} has {free / GIB:.1f} GiB free; checkpoints (weights and optimizer) need about {required / GIB:.1f} GiB. "
            "Free some disk space, or choose another training.output."
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an error reports that memory ran out."""
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "not enough memory" in str(error).lower()
