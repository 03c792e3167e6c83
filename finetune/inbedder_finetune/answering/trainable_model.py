"""The model of a run: loading, checks and preparation for training."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from inbedder.backbones.families import load_model
from inbedder.backbones.hub import open_model
from inbedder.backbones.late_interaction import GATE, LANGUAGE_FILTER
from inbedder.backbones.transformer import find_position_limit
from inbedder.backbones.weights import LoadedModel
from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import AnsweringSchedule
from inbedder_finetune.answering.plan import ModelPlan
from inbedder_finetune.answering.trainable_families import FAMILIES
from inbedder_finetune.recipe import Lora
from inbedder_finetune.training_run import add_adapters, make_lora_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_trainable(plan: ModelPlan, schedule: AnsweringSchedule, processes: int) -> LoadedModel:
    """Load the model of a run, and check that the run can train it.

    Args:
        plan: Model, length and adapters.
        schedule: Training settings.
        processes: Number of training processes.

    Returns:
        Model and tokenizer, in the dtype of the plan; ``prepare_model`` converts all but quantized weights to float32.

    Raises:
        RecipeError: If ``max_length`` exceeds the model's limit, GPUs are missing, the model is an adapter itself, or LoRA
            would leave a head untrained.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    loaded = load_model(open_model(plan.options.model, plan.options.revision), plan.options)
    if loaded.settings.late_interaction:
        raise RecipeError(
            f"{plan.name} consists of adapters that read the question apart from the text. Train its base with "
            f"lora.init_adapter={plan.name}, as the recipe of inbedder finetune --init TABLE does."
        )
    limit = find_position_limit(loaded.model)
    if limit is not None and plan.max_length > limit:
        raise RecipeError(f"{plan.name} takes at most {limit} tokens. Set max_length to {limit} or less.")
    if schedule.fsdp and not (torch.cuda.is_available() and processes > 1):
        raise RecipeError(
            "training.fsdp shards a model over several GPUs. Run: torchrun --nproc_per_node=N -m inbedder finetune ..."
        )
    if FAMILIES[loaded.kind].needs_end and loaded.tokenizer.eos_token_id is None:
        raise RecipeError(f"The tokenizer of {plan.name} has no end token, so answers cannot end.")
    if plan.lora is not None:
        _check_adapters(loaded, plan.name, plan.lora)
    return loaded


def _check_adapters(loaded: LoadedModel, name: str, lora: Lora) -> None:
    if loaded.adapter is not None:
        raise RecipeError(f"{name} is already an adapter. Fine-tune its base model, or train all weights (lora: null).")
    untrained = [part for part in loaded.untrained if not any(f".{module}." in f".{part}" for module in lora.modules_to_save)]
    if untrained:
        raise RecipeError(
            f"The modules {', '.join(untrained)} of {name} are untrained, and LoRA would leave them random. Add them to "
            "lora.modules_to_save (for BERT-like models: transform)."
        )


def prepare_model(model: PreTrainedModel, plan: ModelPlan, schedule: AnsweringSchedule) -> Any:
    """Set a model's attention and dropout, freeze parameters, and add adapters.

    Args:
        model: The loaded model; it is modified.
        plan: Its adapters.
        schedule: Training settings.

    Returns:
        The model, wrapped by peft when the plan has adapters.

    Raises:
        RecipeError: If ``training.freeze`` matches no parameter, or the adapters do not fit.
    """
    lora = plan.lora
    if schedule.attention:
        model.set_attn_implementation(schedule.attention)
    if schedule.dropout is not None:
        _set_dropout(model, schedule.dropout)
    if schedule.gradient_checkpointing:
        model.enable_input_require_grads()
    if schedule.freeze and not _freeze(model, schedule.freeze):
        raise RecipeError(f"training.freeze={schedule.freeze!r} matches no parameter of {plan.name}.")
    if lora is None:
        return model
    if plan.late_interaction:
        added = (GATE,) if plan.languages is None else (GATE, LANGUAGE_FILTER)
        lora = replace(lora, modules_to_save=(*lora.modules_to_save, *added))
    model = _add_lora(model, lora, schedule, quantized=plan.options.quantization is not None)
    _freeze(model, rf"\b{LANGUAGE_FILTER}\b")  # peft trains what it saves
    return model


def _freeze(model: nn.Module, pattern: str) -> int:
    """Freeze the parameters whose names match a pattern; return how many there are."""
    parameters = [parameter for name, parameter in model.named_parameters() if re.search(pattern, name)]
    for parameter in parameters:
        parameter.requires_grad = False
    return len(parameters)


def _set_dropout(model: nn.Module, rate: float) -> None:
    for module in model.modules():
        for name in ("p",) if isinstance(module, nn.Dropout) else ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):  # OPT and others store the rate as a float
                setattr(module, name, rate)


def _add_lora(model: PreTrainedModel, lora: Lora, schedule: AnsweringSchedule, *, quantized: bool) -> Any:
    config = make_lora_config(lora)
    from peft import prepare_model_for_kbit_training

    if quantized:
        model = prepare_model_for_kbit_training(
            model, schedule.gradient_checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    return add_adapters(model, config, lora.init_adapter)
