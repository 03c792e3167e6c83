"""The mean of runs that differ in their seed (model soups, Wortsman et al. 2022): it scores better than one run, and varies less.

The mean change of each layer with adapters is approximated at the adapters' rank by its largest singular values. All other
trained weights are averaged.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from inbedder.backbones.file_checks import ADAPTER_WEIGHTS
from inbedder.io.files import atomic_write
from inbedder.models.checksums import write_checksums

logger = logging.getLogger(__name__)

OWN_FILES = (ADAPTER_WEIGHTS, "README.md", "run.json", "curve.png")
"""Files of a run that its mean with others does not copy."""


def finetune_seeds(recipe: Any, finetune: Callable[[Any], Path]) -> Path:
    """Fine-tune ``training.seeds`` adapters on the same rows, and save their mean.

    Args:
        recipe: A recipe whose ``training.seeds`` is above 1; its run of seed N writes to the folder ``seeds/seed-N`` of
            the output.
        finetune: Function that trains one run.

    Returns:
        Folder of the mean.
    """
    from accelerate import PartialState

    first, output = recipe.training.seed, Path(recipe.training.output)
    data = replace(recipe.data, seed=first if recipe.data.seed is None else recipe.data.seed)
    schedules = [
        replace(recipe.training, seeds=1, seed=seed, output=str(output / "seeds" / f"seed-{seed}"))
        for seed in range(first, first + recipe.training.seeds)
    ]
    runs = [finetune(replace(recipe, data=data, training=schedule)) for schedule in schedules]
    process = PartialState()
    if process.is_main_process:
        save_mean(runs, output)
    process.wait_for_everyone()
    return output


def save_mean(runs: Sequence[Path], output: Path) -> None:
    """Save the mean of adapters with the settings of the first.

    Args:
        runs: Folders of adapters of one shape.
        output: Folder of the mean.
    """
    for path in runs[0].iterdir():
        if path.is_file() and path.name not in OWN_FILES:
            shutil.copy(path, output)
    weights = average_adapters([load_file(run / ADAPTER_WEIGHTS) for run in runs])
    with atomic_write(output / ADAPTER_WEIGHTS) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
    _, _, first_card = (runs[0] / "README.md").read_text(encoding="utf-8").partition("\n")
    names = ", ".join(run.name for run in runs)
    with atomic_write(output / "README.md") as temporary:
        temporary.write_text(
            f"# {output.name}\n\nThe mean of {len(runs)} runs: {names}. The first of them:\n{first_card}", encoding="utf-8"
        )
    write_checksums(output)


def average_adapters(adapters: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average adapters of one shape.

    Args:
        adapters: Weights of each: A (r, inputs) and B (outputs, r) of a layer, whose change is B @ A, and fully trained weights.

    Returns:
        Weights of the same names, shapes and dtypes.
    """
    mean: dict[str, Tensor] = {}
    retained = total = 0.0
    for name, first in adapters[0].items():
        name_b = re.sub(r"(lora_(?:embedding_)?)A", r"\1B", name)
        if name_b != name:
            change = torch.stack([adapter[name_b].float() @ adapter[name].float() for adapter in adapters]).mean(0)
            mean[name], mean[name_b] = compute_factors(change, len(first))
            retained += float((mean[name_b] @ mean[name]).square().sum())
            total += float(change.square().sum())
        elif "lora_" not in name:
            mean[name] = torch.stack([adapter[name].float() for adapter in adapters]).mean(0)
    if total:
        logger.info("The mean of the runs keeps %.1f%% of the squared change", 100 * retained / total)
    return {name: mean[name].to(first.dtype).contiguous() for name, first in adapters[0].items()}


def compute_factors(change: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Compute A (rank, inputs) and B (outputs, rank) whose product B @ A is closest to a change (outputs, inputs)."""
    u, values, v = torch.linalg.svd(change, full_matrices=False)
    root = values[:rank].sqrt()
    padding = (0, rank - len(root))  # the rank may exceed the size of the layer
    return nn.functional.pad(root.unsqueeze(1) * v[:rank], (0, 0, *padding)), nn.functional.pad(u[:, :rank] * root, padding)
