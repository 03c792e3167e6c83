"""Fine-tuning of a language model to answer in a few content words (InBedder paper, section 4.4).

A recipe trains any family (causal, masked, encoder-decoder) with any number of processes. A step has the same ``batch_size`` rows
in the same order for any number of processes and micro-batches; with several processes the short last step of an epoch is filled
up with its first rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inbedder_finetune.answering.answering_recipe import AnsweringRecipe, parse_recipe
from inbedder_finetune.answering.answering_trainer import AnsweringTrainer
from inbedder_finetune.answering.dry_run import describe_rows
from inbedder_finetune.answering.memory import choose_micro_batch, measure_memory
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.qa_rows import hold_out, load_rows
from inbedder_finetune.answering.saved_result import save_result
from inbedder_finetune.answering.trainable_families import choose_family
from inbedder_finetune.answering.trainable_model import load_trainable, prepare_model
from inbedder_finetune.answering.training_data import make_training_data
from inbedder_finetune.preflight import MEMORY_HINT, check_disk_space
from inbedder_finetune.sources import resolve_revision
from inbedder_finetune.training_run import describe_run, find_checkpoint, record_run, train

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["finetune", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)


def finetune(recipe: AnsweringRecipe, *, callbacks: Sequence[TrainerCallback] = ()) -> Path:
    """Fine-tune a language model by a recipe; a run with checkpoints of the same recipe resumes exactly.

    Args:
        recipe: Model, data, objective and schedule.
        callbacks: transformers' callbacks, which see each step and may stop training early.

    Returns:
        Folder of the result, which ``InBedder(folder)`` loads: safetensors weights or a peft adapter, the tokenizer,
        ``inbedder.json`` with template and mask_length, a model card and the loss curve.

    Raises:
        RecipeError: If the model cannot be trained by this recipe, memory or disk space runs out, or the output folder holds
            checkpoints of another run.
    """
    from transformers import set_seed

    plan = resolve_plan(pin_sources(recipe))
    output, seed = plan.output, plan.schedule.seed
    run = describe_run(plan.settings)
    checkpoint = find_checkpoint(output, run)
    set_seed(seed)
    rows, held_out = hold_out(load_rows(plan.data, seed), plan.data.held_out, seed)
    loaded = load_trainable(plan.model, plan.schedule, plan.processes)
    family = choose_family(loaded, plan.model, plan.data.cache)
    model = prepare_model(loaded.model, plan.model, plan.schedule)
    check_disk_space(output, model)
    record_run(output, run)
    logger.info("%d rows of %d sources", len(rows), len(plan.data.sources))
    data = make_training_data(loaded, rows, held_out, plan)
    estimate = measure_memory(model, loaded.model, family, data.collator, bf16=plan.bf16, shards=plan.shards)
    micro_batch = choose_micro_batch(plan, estimate, data.collator, data.train, data.train["length"][:])
    plan = replace(plan, micro_batch=micro_batch)
    trainer = AnsweringTrainer(model, loaded.tokenizer, family, data, plan)
    started = time.time()
    train(trainer, output, checkpoint, MEMORY_HINT, callbacks)
    trainer.save_model(str(output))
    if trainer.is_world_process_zero():
        save_result(trainer, plan, loaded.kind, rows, time.time() - started)
    trainer.accelerator.wait_for_everyone()
    return output


def pin_sources(recipe: AnsweringRecipe) -> AnsweringRecipe:
    """Resolve the revisions of a recipe's sources on the hub to commits."""
    return replace(recipe, data=replace(recipe.data, sources=tuple(map(resolve_revision, recipe.data.sources))))


def preview(recipe: AnsweringRecipe) -> str:
    """Describe the training data of a recipe as the model reads it; train and write nothing.

    Args:
        recipe: Model and data.

    Returns:
        The first prompts, answers and label ids of each source, and a table of the sources.
    """
    plan = resolve_plan(recipe)
    loaded = load_trainable(plan.model, plan.schedule, plan.processes)
    return describe_rows(loaded.kind, loaded.tokenizer, load_rows(plan.data, plan.schedule.seed), plan.answer_format)
