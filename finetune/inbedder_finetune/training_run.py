"""What runs of every method share: adapters, the folder, from which checkpoint a run goes on, and what is said when it cannot."""

from __future__ import annotations

import json
import logging
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback

from inbedder.backbones.adapters import read_config, read_weights
from inbedder.errors import MissingExtraError, ModelError, RecipeError
from inbedder.io.files import atomic_write
from inbedder_finetune.preflight import out_of_memory
from inbedder_finetune.recipe import Lora, Schedule

logger = logging.getLogger(__name__)

RUN_FILE = "run.json"
LOSSES = 10
"""Lines of loss that a run of at least so many steps has."""
FREE = ("resume", "output", "micro_batch", "save_steps", "log_steps", "eval_steps", "report_to", "fsdp", "gradient_checkpointing")
"""Settings of ``training`` that a resumed run may change: they do not change what is learned."""


class OftenEnough(TrainerCallback):
    """A run too short for ten lines of loss at ``log_steps`` says its loss more often."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_about: Any) -> None:
        """Take the steps between lines from the length of the run where that is less."""
        state.logging_steps = max(1, min(int(state.logging_steps), int(state.max_steps) // LOSSES))


def lora_config(lora: Lora) -> Any:
    """The adapters of a recipe, as peft takes them.

    Args:
        lora: The recipe's section.

    Returns:
        A ``LoraConfig``.

    Raises:
        MissingExtraError: When peft is not installed.
    """
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise MissingExtraError("peft", "finetune") from error
    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules) if isinstance(lora.target_modules, tuple) else lora.target_modules,
        modules_to_save=list(lora.modules_to_save) or None,
        bias=lora.bias,
    )


def with_adapters(model: Any, config: Any, start: str | None = None) -> Any:
    """A model with new adapters.

    Args:
        model: One of transformers.
        config: As ``lora_config`` gives it.
        start: Folder of an adapter whose weights the new ones begin with.

    Returns:
        peft's model.

    Raises:
        RecipeError: When the model has no modules of such a name, or the adapter to begin with is of another shape.
    """
    from peft import get_peft_model

    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        raise RecipeError(
            f"lora does not fit the model: {str(error).removesuffix('.')}. Name other lora.target_modules."
        ) from error
    if start is not None:
        _begin_with(adapted, start)
    return adapted


def _begin_with(adapted: Any, start: str) -> None:
    """Give new adapters the weights of others."""
    from peft import set_peft_model_state_dict

    try:
        kept = read_config(Path(start))
        config = adapted.peft_config["default"]
        if (kept.get("r"), kept.get("lora_alpha")) != (config.r, config.lora_alpha):
            raise ValueError(f"r and alpha are {kept.get('r')} and {kept.get('lora_alpha')} there")
        left = set_peft_model_state_dict(adapted, read_weights(Path(start)))
        if left.unexpected_keys:
            raise ValueError(f"it has {left.unexpected_keys[0]}")
        if missing := [name for name in left.missing_keys if ".lora_" in name]:
            raise ValueError(f"it lacks {missing[0]}")
    except (ValueError, RuntimeError, ModelError) as error:
        raise RecipeError(f"lora.start={start} is no adapter of this recipe's shape: {error}") from error


def training_arguments(kind: type[Any], training: Schedule, *, bf16: bool, **changes: Any) -> Any:
    """Make the arguments of transformers' trainer.

    Args:
        kind: ``TrainingArguments``, or sentence-transformers' own.
        training: The recipe's schedule.
        bf16: Whether to train in bfloat16 autocast.
        **changes: What the method adds or says otherwise.

    Returns:
        The arguments; one process takes one GPU.
    """
    on_gpu = torch.cuda.is_available()
    shared = {
        "output_dir": training.output,
        "num_train_epochs": training.epochs,
        "max_steps": training.max_steps,
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
        "seed": training.seed,
        "dataloader_pin_memory": on_gpu,
        "report_to": "none",
    }
    arguments = kind(**{**shared, **changes})
    if arguments.device.type == "cuda":
        arguments._n_gpu = 1  # torchrun for more
    return arguments


def identity(recipe: Any, **more: Any) -> dict[str, Any]:
    """What a run is: everything that changes what is learned.

    Args:
        recipe: A recipe of any method: a dataclass with training and data.
        **more: What else does, such as a hash of the order.

    Returns:
        Nested tables as JSON gives them back.
    """
    content = asdict(recipe) | more
    content["training"] = {key: value for key, value in content["training"].items() if key not in FREE}
    content["data"] = {key: value for key, value in content["data"].items() if key not in ("folder", "cache")}
    return dict(json.loads(json.dumps(content)))


def checkpoint_to_resume(output: Path, run: dict[str, Any], *, resume: bool) -> str | None:
    """The checkpoint from which a run goes on.

    Args:
        output: Folder of the run, which need not exist.
        run: The run's ``identity``.
        resume: Whether the recipe asks to go on.

    Returns:
        Its folder, or None for a run that begins.

    Raises:
        RecipeError: When there are checkpoints and the recipe does not ask for them, they are another run's, or what run they are
            of cannot be read.
    """
    last = last_checkpoint(output)
    if last and not resume:
        raise RecipeError(f"{output} holds checkpoints. Set training.resume=true to go on, or choose another training.output.")
    if last and (output / RUN_FILE).exists():
        before = _noted_run(output / RUN_FILE)
        changed = [key for key in run if before.get(key) != run[key]]
        if changed:
            raise RecipeError(
                f"The checkpoints in {output} are of a run with another {', '.join(changed)}. Resume with the recipe that it "
                "began with, or choose another training.output."
            )
    return last


def train(trainer: Any, output: Path, last: str | None, knobs: str) -> None:
    """Train, from a checkpoint or from the start.

    Args:
        trainer: One of transformers' or sentence-transformers'.
        output: Folder of the run.
        last: A checkpoint of it.
        knobs: The settings that save memory, for the message.

    Raises:
        RecipeError: When memory or disk run out.
    """
    trainer.add_callback(OftenEnough())
    try:
        trainer.train(resume_from_checkpoint=last)
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            raise RecipeError(f"Memory ran out. Try {knobs}. Checkpoints in {output} are kept.") from error
        raise
    except OSError as error:
        raise RecipeError(f"Cannot write to {output}: {error.strerror or error}. Its earlier checkpoints are kept.") from error


def note_run(output: Path, run: dict[str, Any]) -> None:
    """Write what the run is beside its checkpoints."""
    with atomic_write(output / RUN_FILE) as temporary:
        temporary.write_text(json.dumps(run, indent=1), encoding="utf-8")


def _noted_run(path: Path) -> dict[str, Any]:
    """What ``note_run`` wrote."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(run, dict):
            raise ValueError("it must hold a table")
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{path} is damaged ({error}), so nothing tells whose the checkpoints beside it are. Remove it if they are this "
            "recipe's, or choose another training.output."
        ) from error
    return run


def last_checkpoint(output: Path) -> str | None:
    """The last whole checkpoint of a run; one that a kill cut short or that was damaged is passed over, with a warning.

    Args:
        output: Folder of the run, which need not exist.

    Returns:
        Its folder, or None.
    """
    folders = [folder for folder in output.glob("checkpoint-*") if folder.name.removeprefix("checkpoint-").isdecimal()]
    for folder in sorted(folders, key=lambda checkpoint: int(checkpoint.name.split("-")[1]), reverse=True):
        damage = damage_of(folder)
        if damage is None:
            return str(folder)
        logger.warning("%s is passed over: %s. The run goes on from the checkpoint before it, or begins anew.", folder, damage)
    return None


def damage_of(checkpoint: Path) -> str | None:
    """What a checkpoint lacks, or what of it is damaged; no pickle in it is opened.

    transformers writes its pickles as zip archives, whose members carry checksums. Without the optimizer's it would begin with a
    new one, so that is looked for too.

    Args:
        checkpoint: Its folder.

    Returns:
        Words for a message, or None for a whole one.
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
                        raise zipfile.BadZipFile(f"{member} is not what was written")
        except (OSError, ValueError, SafetensorError, zipfile.BadZipFile) as error:
            return f"{path.name} is damaged ({error})"
    return None
