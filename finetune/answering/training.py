"""Fine-tuning a language model to answer in a few content words (InBedder paper, section 4.4).

One recipe, any family (causal, masked, encoder-decoder), any number of processes: a step holds the same ``batch_size`` rows in
the same order whatever the processes and micro-batches (an epoch's last, shorter step is filled up with its first rows where
there are several processes), and its loss is the mean over all of the step's answer tokens.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from finetune.answering.dry_run import dry_run
from finetune.answering.example_cache import cached_examples
from finetune.answering.families import FAMILIES
from finetune.answering.memory import measure, with_micro_batch
from finetune.answering.objectives import QUESTION, make_objectives
from finetune.answering.objectives.base import VectorObjective
from finetune.answering.recipe import AnsweringRecipe, parse_recipe
from finetune.answering.rows import Row, hold_out, load_rows, name_of
from finetune.answering.trainer import AnsweringTrainer, collator_of
from finetune.card import card, save_curve
from finetune.preflight import (
    KNOBS,
    check_room,
    check_trainable,
    shares,
)
from finetune.training_run import checkpoint_to_resume, identity, lora_config, note_run, train, with_adapters
from inbedder.backbones.families import load_model
from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.backbones.late_interaction import prepare
from inbedder.backbones.weights import Loaded, LoadOptions
from inbedder.errors import RecipeError
from inbedder.files import atomic_write
from inbedder.models.checksums import write_checksums

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["finetune", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)


def _add_lora(model: PreTrainedModel, recipe: AnsweringRecipe) -> Any:
    assert recipe.lora is not None
    config = lora_config(recipe.lora)
    from peft import prepare_model_for_kbit_training

    if recipe.quantization:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=recipe.training.gradient_checkpointing)
    return with_adapters(model, config, recipe.lora.start)


def _set_dropout(model: nn.Module, rate: float) -> None:
    for module in model.modules():
        for name in ("p",) if isinstance(module, nn.Dropout) else ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):  # OPT and others keep the rate as a number
                setattr(module, name, rate)


def _prepare(model: PreTrainedModel, recipe: AnsweringRecipe) -> Any:
    """Set dropout and attention, and add the adapter that the recipe asks for."""
    if recipe.late_interaction:
        prepare(model)
    if recipe.training.attention:
        model.set_attn_implementation(recipe.training.attention)
    if recipe.training.dropout is not None:
        _set_dropout(model, recipe.training.dropout)
    if recipe.training.gradient_checkpointing:
        model.enable_input_require_grads()
    if recipe.training.freeze:
        frozen = [parameter for name, parameter in model.named_parameters() if re.search(recipe.training.freeze, name)]
        if not frozen:
            raise RecipeError(f"training.freeze={recipe.training.freeze!r} names no parameter of {recipe.model}.")
        for parameter in frozen:
            parameter.requires_grad = False
    return _add_lora(model, recipe) if recipe.lora else model


def finetune(recipe: AnsweringRecipe) -> Path:
    """Train as a recipe says, with checkpoints from which ``training.resume`` goes on exactly.

    Args:
        recipe: Model, data, objective and schedule.

    Returns:
        The folder of the result, which ``InBedder(folder)`` loads: safetensors weights or a peft adapter, the tokenizer,
        ``inbedder.json`` with template and mask_length, a card and the curve.

    Raises:
        RecipeError: When the model cannot be trained so, memory or disk run out, or the output holds another run's checkpoints.
    """
    from transformers import set_seed

    output = Path(recipe.training.output)
    run = identity(recipe)
    last = checkpoint_to_resume(output, run, resume=recipe.training.resume)
    shares(recipe)
    set_seed(recipe.training.seed)
    rows, held_out = hold_out(load_rows(recipe.data, recipe.training.seed), recipe.data.held_out, recipe.training.seed)
    loaded = _load(recipe)
    model = _prepare(loaded.model, recipe)
    check_room(output, model)
    note_run(output, run)
    data = _parts(loaded, rows, held_out, recipe)
    recipe = _fitting(recipe, model, loaded, data)
    trainer = AnsweringTrainer(model, loaded.tokenizer, data, recipe, loaded.kind)
    started = time.time()
    train(trainer, output, last, KNOBS)
    trainer.save_model(str(output))
    if trainer.is_world_process_zero():
        _save(output, loaded, recipe, _card(recipe, rows, trainer.state.log_history, time.time() - started))
        save_curve(trainer.state.log_history, output / "curve.png")
    trainer.accelerator.wait_for_everyone()
    return output


def _fitting(recipe: AnsweringRecipe, model: Any, loaded: Loaded, data: tuple[Any, Any, dict[str, Tensor]]) -> AnsweringRecipe:
    """The recipe with as many rows at once as memory holds."""
    family = FAMILIES[loaded.kind]
    collator = collator_of(loaded.tokenizer, {}, recipe, family)
    need = measure(model, loaded.model, family, collator, recipe)
    return with_micro_batch(recipe, need, collator, data[0], data[0]["length"][:])


def preview(recipe: AnsweringRecipe) -> str:
    """The dry run of a recipe: nothing is trained or written.

    Args:
        recipe: Model and data.

    Returns:
        The first prompts, targets and token ids of each source, and a table of the sources.
    """
    loaded = _load(recipe)
    return dry_run(loaded.kind, loaded.tokenizer, load_rows(recipe.data, recipe.training.seed), recipe)


def _load(recipe: AnsweringRecipe) -> Loaded:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    device = "cpu" if recipe.training.fsdp else None  # sharded before it goes to the GPUs
    loaded = load_model(recipe.model, LoadOptions(dtype="float32", quantization=recipe.quantization, device=device))
    check_trainable(loaded, recipe, shares_texts=FAMILIES[loaded.kind].shares_texts)
    return loaded


def _parts(
    loaded: Loaded, rows: Sequence[Row], held_out: Sequence[Row], recipe: AnsweringRecipe
) -> tuple[Any, Any, dict[str, Tensor]]:
    """Learned examples, held-out examples (or None), and the targets of both by name."""
    logger.info("%d rows of %d sources", len(rows), len(recipe.data.sources))
    splits = [split for split in (rows, held_out) if split]
    datasets = [cached_examples(loaded.kind, loaded.tokenizer, split, recipe) for split in splits]
    width, vectors = _width(loaded), {}
    targets = {
        one.name: one.make_targets(splits, width, recipe.data.cache)
        for one in make_objectives(recipe.objective)
        if isinstance(one, VectorObjective) and one.is_active
    }
    if recipe.objective.subtract:
        targets[QUESTION] = recipe.objective.make_question_targets(splits, width)
    for name, (vectors[name], indices) in targets.items():
        first = 0
        for number, split in enumerate(splits):
            column = list(indices[first : first + len(split)])
            datasets[number] = datasets[number].add_column(f"{name}_index", column).with_format("numpy")
            first += len(split)
    return datasets[0], datasets[1] if held_out else None, vectors


def _width(loaded: Loaded) -> int:
    """Width of the states that answer (not of OPT-350m's narrower embeddings)."""
    config = loaded.model.config
    return int(getattr(config, "word_embed_proj_dim", None) or config.hidden_size)


def _save(output: Path, loaded: Loaded, recipe: AnsweringRecipe, text: str) -> None:
    loaded.tokenizer.save_pretrained(output)
    (output / "training_args.bin").unlink(missing_ok=True)  # the trainer's pickle; nothing reads it
    if recipe.lora:
        _name_base(output, recipe.model)
    settings = {
        "base": recipe.model if recipe.lora else None,
        "template": recipe.template,
        "mask_length": recipe.mask_length if isinstance(recipe.mask_length, int) else None,
        "late_interaction": recipe.late_interaction or None,
        "recipe": asdict(recipe),
    }
    for name, content in ((SETTINGS_FILE, json.dumps(settings, indent=1)), ("README.md", text)):
        with atomic_write(output / name) as temporary:
            temporary.write_text(content, encoding="utf-8")
    write_checksums(output)


def _card(recipe: AnsweringRecipe, rows: Sequence[Row], history: Sequence[dict[str, Any]], seconds: float) -> str:
    licences = {name_of(source): source.licence for source in recipe.data.sources}
    name = Path(recipe.training.output).name
    about = (
        f'{recipe.model}, fine-tuned by inbedder to answer in a few content words. `InBedder("{name}")` embeds with it under an '
        "instruction,\nin the template that it was trained with (`inbedder.json`)."
    )
    return card(recipe, about, licences, [row.source for row in rows], history, seconds)


def _name_base(adapter: Path, base: str) -> None:
    """Let the adapter name its base as the recipe does, not by the folder that it was read from."""
    path = adapter / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
