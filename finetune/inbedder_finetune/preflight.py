"""Checks before hours are spent."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from inbedder.backbones.weights import has_fast_bf16
from inbedder.errors import RecipeError

KNOBS = (
    "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, a lora section, "
    "quantization=nf4, or more processes with training.fsdp=true"
)
GIB = 2**30


def check_reporting(report_to: str) -> None:
    """Refuse a report whose package is missing.

    Args:
        report_to: "none" or "tensorboard".

    Raises:
        RecipeError: When tensorboard is not installed.
    """
    if report_to == "tensorboard" and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise RecipeError("training.report_to=tensorboard needs the package tensorboard: pip install tensorboard")


def count_processes() -> int:
    """Count the processes that train together (torchrun, accelerate launch)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def uses_bf16(wanted: bool | None) -> bool:
    """Whether to train in bfloat16: as the recipe says (``training.bf16``), otherwise where the device is good at it."""
    if wanted is not None:
        return wanted
    return has_fast_bf16(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def get_free_memory() -> float:
    """Get the free GiB: of the GPU where there is one, otherwise of the machine."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0] / GIB
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 / GIB for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return float("inf")


def check_room(output: Path, model: nn.Module) -> None:
    """Refuse a disk that cannot hold three checkpoints (the last two and the result).

    Args:
        output: Folder of the run; made if it is not there.
        model: With its adapters, if any.

    Raises:
        RecipeError: When the folder cannot be made or the disk is too full.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(output).free
    except OSError as error:
        raise RecipeError(f"Cannot write to {output}: {error.strerror}. Choose another training.output.") from error
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    needed = 3 * 12 * trained
    if free < needed:
        raise RecipeError(
            f"{output} has {free / GIB:.1f} GiB free; checkpoints (weights and optimizer) need about {needed / GIB:.1f} GiB. "
            "Make room or choose another training.output."
        )


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "not enough memory" in str(error).lower()
