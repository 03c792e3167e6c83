"""The model of a run: loaded, checked, and prepared for training."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from inbedder.backbones.families import load_model
from inbedder.backbones.late_interaction import prepare
from inbedder.backbones.transformer import position_limit
from inbedder.backbones.weights import Loaded
from inbedder.errors import RecipeError
from inbedder.options import ModelOptions
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe, AnsweringSchedule
from inbedder_finetune.answering.trainable_families import FAMILIES
from inbedder_finetune.preflight import check_reporting
from inbedder_finetune.recipe import Lora
from inbedder_finetune.training_run import lora_config, with_adapters

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_trainable(recipe: AnsweringRecipe, processes: int) -> Loaded:
    """Load the model of a recipe, and refuse one that the recipe cannot train.

    Args:
        recipe: Model, length, adapters.
        processes: Processes that train together.

    Returns:
        Model and tokenizer, in float32.

    Raises:
        RecipeError: When the length is beyond the model's, a package or GPUs are missing, LoRA is asked of an adapter, or it
            would leave a head random.
    """
    schedule = recipe.training
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    device = "cpu" if schedule.fsdp else None  # sharded before it goes to the GPUs
    loaded = load_model(ModelOptions(recipe.model, dtype="float32", quantization=recipe.quantization, device=device))
    check_reporting(schedule.report_to)
    limit = position_limit(loaded.model)
    if limit is not None and recipe.max_length > limit:
        raise RecipeError(f"{recipe.model} takes at most {limit} tokens; set max_length={limit} or less.")
    if schedule.fsdp and not (torch.cuda.is_available() and processes > 1):
        raise RecipeError(
            "training.fsdp shards a model over several GPUs: start with torchrun --nproc_per_node=N -m inbedder finetune ..."
        )
    family = FAMILIES[loaded.kind]
    if schedule.share_texts and not family.shares_texts:
        raise RecipeError(f"training.share_texts is for causal LMs, and {recipe.model} is not one: its texts see the question.")
    if family.needs_end and loaded.tokenizer.eos_token_id is None:
        raise RecipeError(f"The tokenizer of {recipe.model} has no end token, so no answer could end.")
    if recipe.lora is not None:
        _check_adapters(loaded, recipe.model, recipe.lora)
    return loaded


def _check_adapters(loaded: Loaded, name: str, lora: Lora) -> None:
    if loaded.adapter is not None:
        raise RecipeError(f"{name} is an adapter itself. Fine-tune its base, or train all weights (lora: null).")
    untrained = [part for part in loaded.untrained if not any(f".{module}." in f".{part}" for module in lora.modules_to_save)]
    if untrained:
        raise RecipeError(
            f"{name} has no trained {', '.join(untrained)}, and LoRA would leave them random. Name the modules in "
            "lora.modules_to_save (for BERT-like models: transform)."
        )


def prepare_model(model: PreTrainedModel, recipe: AnsweringRecipe) -> Any:
    """Set a model's attention and dropout, freeze parameters, and add adapters.

    Args:
        model: The loaded model; it is changed.
        recipe: What to set.

    Returns:
        The model, inside peft's where the recipe has adapters.

    Raises:
        RecipeError: When ``training.freeze`` matches no parameter, or the adapters do not fit.
    """
    schedule, lora = recipe.training, recipe.lora
    if recipe.late_interaction:
        prepare(model)
    if schedule.attention:
        model.set_attn_implementation(schedule.attention)
    if schedule.dropout is not None:
        _set_dropout(model, schedule.dropout)
    if schedule.gradient_checkpointing:
        model.enable_input_require_grads()
    if schedule.freeze:
        frozen = [parameter for name, parameter in model.named_parameters() if re.search(schedule.freeze, name)]
        if not frozen:
            raise RecipeError(f"training.freeze={schedule.freeze!r} names no parameter of {recipe.model}.")
        for parameter in frozen:
            parameter.requires_grad = False
    return model if lora is None else _add_lora(model, lora, schedule, quantized=recipe.quantization is not None)


def _set_dropout(model: nn.Module, rate: float) -> None:
    for module in model.modules():
        for name in ("p",) if isinstance(module, nn.Dropout) else ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):  # OPT and others keep the rate as a number
                setattr(module, name, rate)


def _add_lora(model: PreTrainedModel, lora: Lora, schedule: AnsweringSchedule, *, quantized: bool) -> Any:
    config = lora_config(lora)
    from peft import prepare_model_for_kbit_training

    if quantized:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=schedule.gradient_checkpointing)
    return with_adapters(model, config, lora.start)
