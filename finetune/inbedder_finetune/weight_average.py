"""An exponential moving average of the trained weights, which a run saves in place of its last weights.

    a = d a + (1 - d) w after each step, with d = min(decay, (1 + step) / (10 + step))

The average of the last steps is close to the mean of several runs, for the price of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback

from inbedder.errors import RecipeError
from inbedder.io.files import atomic_write

AVERAGE_FILE = "average.safetensors"
"""File of the average in a checkpoint."""


class WeightAverage(TrainerCallback):
    """Callback that averages the trained weights and puts the average into the model at the end of training."""

    def __init__(self, decay: float, checkpoint: str | None = None) -> None:
        """Set the decay, and the checkpoint from which the run resumes, if any."""
        self.decay, self.checkpoint = decay, checkpoint
        self._average: dict[str, Tensor] = {}

    def on_train_begin(self, _args: Any, _state: Any, _control: Any, model: nn.Module, **_options: Any) -> None:
        """Start from the model's weights, or from the average of the checkpoint."""
        self._average = {name: weight.detach().clone() for name, weight in _list_trained(model)}
        if self.checkpoint is not None:
            path = Path(self.checkpoint) / AVERAGE_FILE
            if not path.is_file():
                raise RecipeError(f"{path} is missing, so the average of the weights is lost. Delete {self.checkpoint}.")
            for name, weight in load_file(path).items():
                self._average[name].copy_(weight)

    def on_step_end(self, _args: Any, state: Any, _control: Any, model: nn.Module, **_options: Any) -> None:
        """Move the average towards the weights."""
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        with torch.no_grad():
            for name, weight in _list_trained(model):
                self._average[name].lerp_(weight, 1 - decay)

    def on_save(self, args: Any, state: Any, _control: Any, **_options: Any) -> None:
        """Save the average in the checkpoint."""
        if state.is_world_process_zero:
            with atomic_write(Path(args.output_dir) / f"checkpoint-{state.global_step}" / AVERAGE_FILE) as temporary:
                save_file(self._average, temporary)

    def on_train_end(self, _args: Any, _state: Any, _control: Any, model: nn.Module, **_options: Any) -> None:
        """Put the average into the model."""
        with torch.no_grad():
            for name, weight in _list_trained(model):
                weight.copy_(self._average[name])


def _list_trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
