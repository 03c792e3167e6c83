"""What is refused, or said, before hours are spent."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from inbedder.backbones.transformer import position_limit
from inbedder.backbones.weights import Loaded, has_fast_bf16
from inbedder.errors import RecipeError

if TYPE_CHECKING:
    from finetune.answering.recipe import AnsweringRecipe

KNOBS = (
    "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, a lora section, "
    "quantization=nf4, or more processes with training.fsdp=true"
)
GIB = 2**30


def check_trainable(loaded: Loaded, recipe: AnsweringRecipe, *, shares_texts: bool = False) -> None:
    """Refuse models that the recipe cannot train.

    Args:
        loaded: The model.
        recipe: Length and adapters.
        shares_texts: Whether such a model can read a text once for several questions.

    Raises:
        RecipeError: When the length is beyond the model's, a package or GPUs are missing, LoRA is asked of an adapter, or it
            would leave a head random.
    """
    check_reporting(recipe.training.report_to)
    limit = position_limit(loaded.model)
    if limit is not None and recipe.max_length > limit:
        raise RecipeError(f"{recipe.model} takes at most {limit} tokens; set max_length={limit} or less.")
    if recipe.training.fsdp and not (torch.cuda.is_available() and processes() > 1):
        raise RecipeError(
            "training.fsdp shards a model over several GPUs: start with torchrun --nproc_per_node=N -m inbedder finetune ..."
        )
    if recipe.training.share_texts and not shares_texts:
        raise RecipeError(f"training.share_texts is for causal LMs, whose texts do not see the question; {recipe.model} is none.")
    if recipe.lora is None:
        return
    if loaded.adapter is not None:
        raise RecipeError(f"{recipe.model} is an adapter itself. Fine-tune its base, or train all weights (lora: null).")
    lost = [name for name in loaded.untrained if not any(f".{module}." in f".{name}" for module in recipe.lora.modules_to_save)]
    if lost:
        raise RecipeError(
            f"{recipe.model} has no trained {', '.join(lost)}, and LoRA would leave them random. Name the modules in "
            "lora.modules_to_save (for BERT-like models: transform)."
        )


def check_reporting(report_to: str) -> None:
    """Refuse a report whose package is missing.

    Args:
        report_to: "none" or "tensorboard".

    Raises:
        RecipeError: When tensorboard is not installed.
    """
    if report_to == "tensorboard" and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise RecipeError("training.report_to=tensorboard needs the package tensorboard: pip install tensorboard")


def processes() -> int:
    """How many processes train together (torchrun, accelerate launch)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def shares(recipe: AnsweringRecipe) -> tuple[int, int]:
    """How the rows of a step are shared out.

    Args:
        recipe: batch_size (of all processes together) and micro_batch.

    Returns:
        Rows that one process holds at once, and how often it does so a step.

    Raises:
        RecipeError: When they cannot be shared evenly.
    """
    total, count = recipe.training.batch_size, processes()
    micro = recipe.training.micro_batch or total // count
    if micro < 1 or total % (micro * count):
        raise RecipeError(
            f"training.batch_size={total} cannot be shared by {count} processes with {micro} rows at once: make it a multiple."
        )
    return micro, total // (micro * count)


def uses_bf16(wanted: bool | None) -> bool:
    """Whether to train in bfloat16: as the recipe says (``training.bf16``), otherwise where the device is good at it."""
    if wanted is not None:
        return wanted
    return has_fast_bf16(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def memory_there() -> float:
    """GiB that are free: of the GPU where there is one, otherwise of the machine."""
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
