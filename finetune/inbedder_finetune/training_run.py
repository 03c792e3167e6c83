"""Code shared by the runs of all methods: adapters, trainer arguments, checkpoints and resuming."""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback

from inbedder.backbones.adapters import read_config, read_weights
from inbedder.errors import ModelError, RecipeError
from inbedder.io.files import atomic_write
from inbedder.models.bundled import resolve_name
from inbedder_finetune.checked_trainer import CheckedTrainer, check_finite_weights, check_result, fingerprint_weights
from inbedder_finetune.preflight import is_out_of_memory
from inbedder_finetune.recipe import Lora, Schedule

logger = logging.getLogger(__name__)

RUN_FILE = "run.json"
MIN_LOGGED_LOSSES = 10
"""Minimum number of logged losses of a run with at least as many steps."""
RESUMABLE_SETTINGS = (
    "output",
    "micro_batch",
    "save_steps",
    "log_steps",
    "eval_steps",
    "keep_checkpoints",
    "report_to",
    "fsdp",
    "gradient_checkpointing",
)
"""Settings of ``training`` that a resumed run may change, because they do not affect the weights."""


class LogEvery(TrainerCallback):
    """Callback that logs the loss of short runs more often than every ``log_steps`` steps."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        """Reduce the steps between logged losses so that the run logs at least ``MIN_LOGGED_LOSSES``."""
        state.logging_steps = max(1, min(int(state.logging_steps), int(state.max_steps) // MIN_LOGGED_LOSSES))


def make_lora_config(lora: Lora) -> Any:
    """Make peft's configuration of a recipe's adapters.

    Args:
        lora: The recipe's section ``lora``.

    Returns:
        A ``LoraConfig``.

    """
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules) if isinstance(lora.target_modules, tuple) else lora.target_modules,
        modules_to_save=list(lora.modules_to_save) or None,
        bias=lora.bias,
    )


def add_adapters(model: Any, config: Any, init_adapter: str | None = None) -> Any:
    """Add new adapters to a model.

    Args:
        model: A transformers model.
        config: A ``LoraConfig`` from ``make_lora_config``.
        init_adapter: Folder of an adapter, or name of a bundled model, whose weights initialize the new ones.

    Returns:
        peft's model.

    Raises:
        RecipeError: If the model has no such modules, or ``init_adapter`` has another shape.
    """
    from peft import get_peft_model

    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        raise RecipeError(
            f"lora does not fit the model: {str(error).removesuffix('.')}. Name other lora.target_modules."
        ) from error
    if init_adapter is not None:
        _load_initial_weights(adapted, init_adapter)
    return adapted


def _load_initial_weights(adapted: Any, init_adapter: str) -> None:
    """Load the weights of another adapter into new ones."""
    from peft import set_peft_model_state_dict

    try:
        folder = Path(resolve_name(init_adapter))
        saved_config = read_config(folder)
        config = adapted.peft_config["default"]
        if (saved_config.get("r"), saved_config.get("lora_alpha")) != (config.r, config.lora_alpha):
            raise ValueError(f"its r and alpha are {saved_config.get('r')} and {saved_config.get('lora_alpha')}")
        mismatch = set_peft_model_state_dict(adapted, read_weights(folder))
        if mismatch.unexpected_keys:
            raise ValueError(f"it has {mismatch.unexpected_keys[0]}")
        if missing := [name for name in mismatch.missing_keys if ".lora_" in name]:
            raise ValueError(f"it lacks {missing[0]}")
    except (ValueError, RuntimeError, ModelError) as error:
        raise RecipeError(f"The adapter lora.init_adapter={init_adapter} does not fit this recipe: {error}") from error


def make_training_arguments(kind: type[Any], training: Schedule, *, bf16: bool, **changes: Any) -> Any:
    """Make the arguments of transformers' trainer.

    Args:
        kind: ``TrainingArguments`` or its subclass of sentence-transformers.
        training: The recipe's section ``training``.
        bf16: Whether to train in bfloat16 autocast.
        **changes: Arguments that the method adds or overrides.

    Returns:
        The arguments; each process uses one GPU.
    """
    on_gpu = torch.cuda.is_available()
    shared = {
        "output_dir": training.output,
        "num_train_epochs": training.epochs,
        "max_steps": training.max_steps or -1,
        "per_device_train_batch_size": training.batch_size,
        "per_device_eval_batch_size": training.batch_size,
        "learning_rate": training.learning_rate,
        "warmup_steps": training.warmup,
        "lr_scheduler_type": training.scheduler,
        "weight_decay": training.weight_decay,
        "bf16": bf16,
        "use_cpu": not on_gpu,
        "save_steps": training.save_steps,
        "save_total_limit": 2,
        "logging_steps": training.log_steps,
        "logging_nan_inf_filter": False,
        "seed": training.seed,
        "dataloader_pin_memory": on_gpu,
        "report_to": training.report_to if isinstance(training.report_to, str) else list(training.report_to),
    }
    arguments = kind(**{**shared, **changes})
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1  # several GPUs need torchrun, not DataParallel
    return arguments


def describe_run(settings: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Describe a run by every setting that affects its weights.

    Args:
        settings: All settings of a recipe of any method, as nested tables.
        **more: Further values that affect the weights, such as a hash of the row order.

    Returns:
        Nested tables, equal to what JSON reads back.
    """
    content = dict(settings) | more
    training = content["training"]
    resumable = set(RESUMABLE_SETTINGS)
    if training.get("token_mean") == "micro-batch":
        resumable.remove("micro_batch")
    content["training"] = {key: value for key, value in training.items() if key not in resumable}
    content["data"] = {key: value for key, value in content["data"].items() if key not in ("folder", "cache")}
    return dict(json.loads(json.dumps(content)))


def find_checkpoint(output: Path, run: dict[str, Any]) -> str | None:
    """Find the checkpoint from which a run resumes.

    Args:
        output: Folder of the run, which may not exist.
        run: The run, from ``describe_run``.

    Returns:
        Folder of the checkpoint, or None for a new run.

    Raises:
        RecipeError: If the checkpoints belong to another run, or the description of their run is damaged.
    """
    checkpoint = find_last_checkpoint(output)
    if checkpoint and (output / RUN_FILE).exists():
        saved_run = _read_run(output / RUN_FILE)
        changed = [key for key in run if saved_run.get(key) != run[key]]
        if changed:
            raise RecipeError(
                f"The checkpoints in {output} belong to a run with another {', '.join(changed)}. Resume with the original "
                "recipe, or choose another training.output."
            )
    return checkpoint


def train(
    trainer: CheckedTrainer,
    output: Path,
    checkpoint: str | None,
    memory_hint: str,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Train from a checkpoint or from the start.

    Args:
        trainer: The method's trainer.
        output: Folder of the run.
        checkpoint: Checkpoint to resume from; None starts a new run.
        memory_hint: The settings that save memory, for the error message.
        callbacks: The caller's callbacks, which may stop training early.

    Raises:
        RecipeError: If memory or disk space runs out, or the run does not train its model (``checked_trainer``).
    """
    for callback in (LogEvery(), *callbacks):
        trainer.add_callback(callback)
    check_finite_weights(trainer.model)
    initial_weights = fingerprint_weights(trainer.model)
    if checkpoint is not None:
        trainer.has_gradient = True  # the steps before the checkpoint have changed its weights
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise RecipeError(f"Out of memory. Try {memory_hint}. The checkpoints in {output} are kept.") from error
        raise
    except OSError as error:
        raise RecipeError(f"Cannot write to {output}: {error.strerror or error}. Earlier checkpoints are kept.") from error
    check_result(trainer, initial_weights)


def record_run(output: Path, run: dict[str, Any]) -> None:
    """Write the description of a run next to its checkpoints."""
    with atomic_write(output / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(run, indent=1), encoding="utf-8")


def _read_run(path: Path) -> dict[str, Any]:
    """Read the description that ``record_run`` wrote."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(run, dict):
            raise ValueError("it is not a table")
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{path} is damaged ({error}), so the run of the checkpoints next to it is unknown. Delete the file if they belong "
            "to this recipe, or choose another training.output."
        ) from error
    return run


def find_last_checkpoint(output: Path) -> str | None:
    """Find the last complete checkpoint of a run; damaged ones are skipped with a warning.

    Args:
        output: Folder of the run, which may not exist.

    Returns:
        Folder of the checkpoint, or None.
    """
    folders = [folder for folder in output.glob("checkpoint-*") if folder.name.removeprefix("checkpoint-").isdecimal()]
    for folder in sorted(folders, key=lambda checkpoint: int(checkpoint.name.split("-")[1]), reverse=True):
        damage = find_damage(folder)
        if damage is None:
            return str(folder)
        logger.warning("Skipping %s: %s. The run resumes from an earlier checkpoint, or starts over without one.", folder, damage)
    return None


def find_damage(checkpoint: Path) -> str | None:
    """Find a missing or damaged file of a checkpoint without opening its pickles.

    transformers writes pickles as zip archives, whose members have checksums. The optimizer's file is required, because the
    trainer silently starts a new optimizer without it.

    Args:
        checkpoint: Folder of the checkpoint.

    Returns:
        A clause for a message, or None for a complete checkpoint.
    """
    for kinds in (
        ("trainer_state.json",),
        ("*.safetensors", "pytorch_model_fsdp*"),
        ("optimizer*",),
        ("scheduler.pt",),
        ("rng_state*.pth",),
    ):
        if not any(next(checkpoint.glob(kind), None) for kind in kinds):
            return f"it has no {' or '.join(kinds)}"
    for path in sorted(checkpoint.rglob("*")):
        try:
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    file.keys()
            elif path.suffix in (".pt", ".pth", ".bin"):
                with zipfile.ZipFile(path) as archive:
                    if (member := archive.testzip()) is not None:
                        raise zipfile.BadZipFile(f"the checksum of {member} does not match")
        except (OSError, ValueError, SafetensorError, zipfile.BadZipFile) as error:
            return f"{path.name} is damaged ({error})"
    return None
