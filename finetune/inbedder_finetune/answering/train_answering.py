"""Fine-tuning a language model to answer in a few content words (InBedder paper, section 4.4).

One recipe, any family (causal, masked, encoder-decoder), any number of processes: a step holds the same ``batch_size`` rows in
the same order whatever the processes and micro-batches (an epoch's last, shorter step is filled up with its first rows where
there are several processes), and its loss is the mean over all of the step's answer tokens.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

from inbedder_finetune.answering.answering_recipe import AnsweringRecipe, parse_recipe
from inbedder_finetune.answering.answering_trainer import AnsweringTrainer
from inbedder_finetune.answering.dry_run import dry_run
from inbedder_finetune.answering.memory import choose_micro_batch, measure_memory
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.qa_rows import hold_out, load_rows
from inbedder_finetune.answering.saved_result import save_result
from inbedder_finetune.answering.trainable_families import FAMILIES
from inbedder_finetune.answering.trainable_model import load_trainable, prepare_model
from inbedder_finetune.answering.training_data import make_training_data
from inbedder_finetune.preflight import KNOBS, check_room
from inbedder_finetune.training_run import checkpoint_to_resume, identity, note_run, train

__all__ = ["finetune", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)


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

    output, seed = Path(recipe.training.output), recipe.training.seed
    run = identity(recipe)
    checkpoint = checkpoint_to_resume(output, run, resume=recipe.training.resume)
    plan = resolve_plan(recipe)
    set_seed(seed)
    rows, held_out = hold_out(load_rows(recipe.data, seed), recipe.data.held_out, seed)
    loaded = load_trainable(recipe, plan.processes)
    model = prepare_model(loaded.model, recipe)
    check_room(output, model)
    note_run(output, run)
    logger.info("%d rows of %d sources", len(rows), len(recipe.data.sources))
    data = make_training_data(loaded, rows, held_out, plan)
    family = FAMILIES[loaded.kind]
    estimate = measure_memory(model, loaded.model, family, data.collator, bf16=plan.bf16, shards=plan.shards)
    micro_batch = choose_micro_batch(plan, estimate, data.collator, data.learned, data.learned["length"][:])
    plan = replace(plan, micro_batch=micro_batch)
    trainer = AnsweringTrainer(model, loaded.tokenizer, family, data, plan)
    started = time.time()
    train(trainer, output, checkpoint, KNOBS)
    trainer.save_model(str(output))
    if trainer.is_world_process_zero():
        save_result(trainer, recipe, micro_batch, rows, time.time() - started, output)
    trainer.accelerator.wait_for_everyone()
    return output


def preview(recipe: AnsweringRecipe) -> str:
    """Describe what a recipe would learn; nothing is trained or written.

    Args:
        recipe: Model and data.

    Returns:
        The first prompts, targets and token ids of each source, and a table of the sources.
    """
    plan = resolve_plan(recipe)
    loaded = load_trainable(recipe, plan.processes)
    return dry_run(loaded.kind, loaded.tokenizer, load_rows(recipe.data, recipe.training.seed), plan.answer_format)
