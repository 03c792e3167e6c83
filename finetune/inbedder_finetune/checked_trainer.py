"""A trainer that stops a run which does not train: losses, gradients or weights that are not finite, or weights that stay.

transformers' trainer goes on after a NaN, and its log shows the mean of the earlier losses instead (``logging_nan_inf_filter``,
which ``make_training_arguments`` turns off).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from inbedder.errors import RecipeError

NOTHING_SAVED = "No model was saved."


class CheckedTrainer(Trainer):
    """transformers' trainer, with checks of every step and of the weights that it saves."""

    has_gradient: bool | None = None
    """Whether a step had a gradient other than 0; None before the first step of a new run."""

    def create_scheduler(self, num_training_steps: int, *args: Any, **options: Any) -> Any:
        """Create the schedule of the learning rate, with a warm-up that is shorter than the run.

        Args:
            num_training_steps: Number of steps of the run.
            *args: Further arguments of transformers' trainer.
            **options: Further keyword arguments of transformers' trainer.

        Returns:
            The schedule.
        """
        self.args.warmup_steps = count_warmup_steps(self.args.warmup_steps, num_training_steps)
        return super().create_scheduler(num_training_steps, *args, **options)

    def training_step(self, *args: Any, **options: Any) -> Tensor:
        """Compute the gradients of one step, and check them.

        Args:
            *args: Arguments of transformers' trainer.
            **options: Keyword arguments of transformers' trainer.

        Returns:
            The loss.
        """
        return self.check_step(super().training_step(*args, **options))

    def check_step(self, loss: Tensor) -> Tensor:
        """Check that the loss and the gradients of a step are finite. All processes come to the same result.

        Args:
            loss: The loss of this process; the mean over processes is checked.

        Returns:
            The loss, unchanged.

        Raises:
            RecipeError: If the loss or the norm of the gradients is not finite. A gradient scaler (fp16) handles the latter
                itself: it skips the step.
        """
        norm = compute_gradient_norm(self.model)
        self.has_gradient = self.has_gradient or norm != 0
        values = {"loss": float(self.accelerator.reduce(loss.detach(), "mean"))}
        if self.accelerator.scaler is None:
            values["gradient norm"] = norm
        for name, value in values.items():
            if not math.isfinite(value):
                rate = max(group["lr"] for group in self.optimizer.param_groups)
                raise RecipeError(
                    f"The {name} is {value} at step {self.state.global_step + 1} of {self.state.max_steps}, where the learning "
                    f"rate is {rate:g}. {NOTHING_SAVED} Lower training.learning_rate={self.args.learning_rate:g}, or check the "
                    "model and the rows."
                )
        return loss

    def save_model(self, *args: Any, **options: Any) -> None:
        """Save the model or a checkpoint, unless its weights are not finite.

        Args:
            *args: Arguments of transformers' trainer.
            **options: Keyword arguments of transformers' trainer.
        """
        check_finite_weights(self.model)
        super().save_model(*args, **options)


def count_warmup_steps(share: float, steps: int) -> int:
    """Count the steps of the warm-up, whose first step has a learning rate of 0.

    Args:
        share: The recipe's ``training.warmup``.
        steps: Number of steps of the run.

    Returns:
        The number of steps, below ``steps``, so that at least one step changes the weights.

    Example:
        >>> count_warmup_steps(0.1, 1), count_warmup_steps(0.1, 200), count_warmup_steps(1, 200)
        (0, 20, 199)
    """
    return min(math.ceil(share * steps), steps - 1)


def compute_gradient_norm(model: nn.Module) -> float:
    """Compute the norm of all gradients of a model, as the trainer logs it."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return float(_gather(torch.nn.utils.get_total_norm(gradients)))


def check_finite_weights(model: nn.Module) -> None:
    """Check that the trained weights of a model are finite.

    Args:
        model: The model, with its adapters if any.

    Raises:
        RecipeError: If a weight is NaN or infinite; the message names its tensor.
    """
    for name, parameter in _list_trained(model):
        if not bool(_gather(parameter).isfinite().all()):
            raise RecipeError(
                f"The weights {name} are not finite. {NOTHING_SAVED} Lower training.learning_rate, or check the model that "
                "training starts from."
            )


def fingerprint_weights(model: nn.Module) -> list[int]:
    """Compute a number of each trained tensor that changes with its bits.

    Args:
        model: The model, with its adapters if any.

    Returns:
        The sum of each tensor's bits as 32-bit integers, in the order of ``named_parameters``.

    Raises:
        RecipeError: If the model has no tensor to train.
    """
    sums = [int(_gather(parameter).float().view(torch.int32).sum(dtype=torch.int64)) for _, parameter in _list_trained(model)]
    if not sums:
        raise RecipeError("The recipe leaves no weight to train. Change training.freeze.")
    return sums


def check_result(trainer: CheckedTrainer, initial_weights: list[int]) -> None:
    """Check that a run has trained its model.

    Args:
        trainer: The trainer, after training.
        initial_weights: Result of ``fingerprint_weights`` before training, also before a checkpoint was loaded.

    Raises:
        RecipeError: If a weight is not finite, no weight has changed, or all gradients were 0.
    """
    check_finite_weights(trainer.model)
    is_idle = trainer.has_gradient is False
    if is_idle or fingerprint_weights(trainer.model) == initial_weights:
        reason = "all gradients are 0, so no row has anything to learn" if is_idle else "no weight changed"
        raise RecipeError(
            f"Training had no effect in {trainer.state.global_step} steps: {reason}. {NOTHING_SAVED} Check the rows, "
            "training.learning_rate and the weights of the objective."
        )


def _list_trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def _gather(tensor: Tensor) -> Tensor:
    """Gather the shards of a tensor (FSDP); any other tensor is whole."""
    full_tensor: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full_tensor.detach()
