"""Contrastive fine-tuning of an instructed encoder (INSTRUCTOR paper, section 2.2 and appendix A): from a recipe to a folder."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbedder.backbones.adapters import load_merged
from inbedder.backbones.sentence_modules import sentence_folder
from inbedder.backbones.transformer import position_limit
from inbedder.backbones.weights import quietly
from inbedder.errors import MissingExtraError, RecipeError
from inbedder.io.files import atomic_write
from inbedder.models.bundled import resolve_name
from inbedder.models.checksums import write_checksums
from inbedder_finetune.answering.qa_rows import hold_out
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe, parse_recipe
from inbedder_finetune.contrastive.contrastive_trainer import make_trainer
from inbedder_finetune.contrastive.instructed import (
    UNPOOLED,
    check_instructions,
    instructed_prompts,
    leave_out,
    tokenized,
)
from inbedder_finetune.contrastive.pairs import Pair, load_pairs
from inbedder_finetune.contrastive.task_batches import TaskBatchSampler
from inbedder_finetune.curriculum.data_cube import data_cube_batches, note_underfitting
from inbedder_finetune.model_card import card, save_curve
from inbedder_finetune.preflight import check_room, count_processes
from inbedder_finetune.training_run import checkpoint_to_resume, identity, lora_config, note_run, train

__all__ = ["finetune", "parse_recipe", "preview", "training_pairs"]

logger = logging.getLogger(__name__)

KNOBS = "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, or a lora section"


def training_pairs(recipe: ContrastiveRecipe) -> tuple[list[Pair], list[Pair]]:
    """The rows of a recipe, in an order that depends on the recipe alone.

    Args:
        recipe: Data and seed.

    Returns:
        The learned rows, whose places are the numbers that ``finetune(batches=)`` takes, and the held-out ones.
    """
    pairs = load_pairs(recipe.data, recipe.training.seed)
    return hold_out(pairs, recipe.data.held_out, recipe.training.seed)


def load_encoder(recipe: ContrastiveRecipe) -> Any:
    """The sentence-transformers model that a recipe trains: encoder, mean pool without the prompt, Dense where it has one, norm.

    Args:
        recipe: Model and length.

    Returns:
        A SentenceTransformer in float32.

    Raises:
        RecipeError: When it does not exist, does not pool by the mean, has no fast tokenizer or takes fewer tokens.
        MissingExtraError: When sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "finetune") from error
    try:
        with quietly(expected_gaps=True):
            model = SentenceTransformer(
                str(sentence_folder(resolve_name(recipe.model))),
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
                trust_remote_code=False,
            )
    except Exception as error:  # a damaged file can raise anything
        raise RecipeError(
            f"Cannot load {recipe.model}: {' '.join(str(error).split())[:400]}. Give a hub id or a folder."
        ) from error
    pooling = next((module for module in model if isinstance(module, Pooling)), None)
    if pooling is None or pooling.pooling_mode != "mean":
        raise RecipeError(
            f"{recipe.model} does not pool by the mean, as INSTRUCTOR does. Choose an encoder that does, or a plain one."
        )
    pooling.include_prompt = False
    leave_out(pooling)
    if not any(isinstance(module, Normalize) for module in model):
        model.append(Normalize())
    if not model.tokenizer.is_fast:
        raise RecipeError(f"{recipe.model} has no fast tokenizer (tokenizer.json); convert it with tokenizers.")
    model.tokenizer.padding_side = model.tokenizer.truncation_side = "right"
    limit = position_limit(model.transformers_model)
    if limit is not None and recipe.max_length > limit:
        raise RecipeError(f"{recipe.model} takes at most {limit} tokens; set max_length={limit} or less.")
    model.max_seq_length = recipe.max_length
    return model


def finetune(recipe: ContrastiveRecipe, batches: Sequence[Sequence[int]] | None = None) -> Path:
    """Train as a recipe says, with checkpoints from which ``training.resume`` goes on exactly.

    Args:
        recipe: Model, data and schedule.
        batches: Row numbers of each batch (places in ``training_pairs(recipe)[0]``), each of one task, in the order of every
            epoch; None makes batches of one task, in Data-CUBE's order where the recipe has a curriculum, else in a drawn one.

    Returns:
        The folder of the result, a plain sentence-transformers model, with a card and the curve.

    Raises:
        RecipeError: When the model or the batches cannot be used, memory or disk run out, or the output holds another run.
    """
    from transformers import set_seed

    if count_processes() > 1:
        raise RecipeError("Contrastive training runs in one process; start it without torchrun and accelerate.")
    output = Path(recipe.training.output)
    size, seed = recipe.training.batch_size, recipe.training.seed
    learned, watched = training_pairs(recipe)
    if batches is None and recipe.curriculum is not None:
        batches, anchors = data_cube_batches(learned, recipe.curriculum, size, seed)
        learned = [replace(row, is_anchor=is_anchor) for row, is_anchor in zip(learned, anchors, strict=True)]
    order = {} if batches is None else {"batches": _digest(batches)}
    run = identity(recipe, **order)
    last = checkpoint_to_resume(output, run, resume=recipe.training.resume)
    set_seed(recipe.training.seed)
    orders = TaskBatchSampler(learned, size, seed, batches), TaskBatchSampler(watched, size, seed) if watched else None
    model = load_encoder(recipe)
    check_instructions(instructed_prompts(model.tokenizer, recipe.max_length), _instructions([*learned, *watched]))
    if recipe.lora is not None:
        model.add_adapter(lora_config(recipe.lora))
    check_room(output, model)
    note_run(output, run)
    logger.info("%d rows of %d tasks, %d steps an epoch", len(learned), len({row.task for row in learned}), len(orders[0]))
    trainer = make_trainer(model, *orders, recipe)
    started = time.time()
    train(trainer, output, last, KNOBS)
    _save(trainer.model, recipe)
    write_checksums(output)
    text = _card(recipe, learned, trainer.state.log_history, time.time() - started)
    with atomic_write(output / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    save_curve(trainer.state.log_history, output / "curve.png")
    if recipe.curriculum is not None:
        note_underfitting(learned, recipe.model, output, seed)
    return output


def _digest(batches: Sequence[Sequence[int]]) -> str:
    return hashlib.sha256(json.dumps([[int(row) for row in batch] for batch in batches]).encode()).hexdigest()[:16]


def _instructions(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(text.instruction for row in pairs for text in (row.query, row.positive, *row.negatives)))


def _save(model: Any, recipe: ContrastiveRecipe) -> None:
    """Write the plain model; adapters are merged into a fresh base first."""
    if recipe.lora is None:
        model.save_pretrained(recipe.training.output, create_model_card=False)
        return
    whole = load_encoder(recipe)
    with tempfile.TemporaryDirectory() as adapter:
        model.transformers_model.save_pretrained(adapter)
        if not load_merged(whole.transformers_model, Path(adapter)):
            raise RecipeError(
                f"The adapter is more than plain LoRA and cannot be merged; {recipe.training.output} keeps it in a checkpoint."
            )
    whole.save_pretrained(recipe.training.output, create_model_card=False)


def _card(recipe: ContrastiveRecipe, rows: Sequence[Pair], history: Sequence[dict[str, Any]], seconds: float) -> str:
    name = Path(recipe.training.output).name
    known = _instructions(rows)
    shown = "\n".join(f"- `{name!r}`" if name else "- none" for name in known[:20])
    about = (
        f"{recipe.model}, fine-tuned by inbedder's contrastive method: instruction and text are read together, the text's states "
        f'are pooled.\n`SentenceTransformer("{name}").encode(texts, prompt=instruction)` loads it without remote code.\n\n'
        f"It was trained under {len(known):,} instructions{', such as' if len(known) > 20 else ''}:\n\n{shown}"
    )
    licences = {source.path: source.licence for source in recipe.data.sources}
    return card(recipe, about, licences, [row.source for row in rows], history, seconds)


def preview(recipe: ContrastiveRecipe) -> str:
    """The dry run of a recipe: nothing is trained or written.

    Args:
        recipe: Model and data.

    Returns:
        The first rows of each source with what the pool sees of them, and a table of the tasks.
    """
    learned, watched = training_pairs(recipe)
    model = load_encoder(recipe)
    check_instructions(instructed_prompts(model.tokenizer, recipe.max_length), _instructions([*learned, *watched]))
    lines = []
    for source in dict.fromkeys(row.source for row in learned):
        first = next(row for row in learned if row.source == source)
        lines.append(f"== {source}")
        for name, shown in (
            ("query", first.query),
            ("pos", first.positive),
            *(("neg", negative) for negative in first.negatives),
        ):
            inputs = tokenized(instructed_prompts(model.tokenizer, recipe.max_length), [shown])
            pooled = inputs["input_ids"][0][(inputs["attention_mask"] * (1 - inputs[UNPOOLED]))[0].bool()]
            lines += [
                f"{name}: {shown.instruction + shown.text!r}",
                f"pooled: {model.tokenizer.convert_ids_to_tokens(pooled.tolist())}",
            ]
    lines += ["", "task  rows  negatives"]
    for task in dict.fromkeys(row.task for row in learned):
        of_task = [row for row in learned if row.task == task]
        lines.append(f"{task}  {len(of_task):,}  {len(of_task[0].negatives)}")
    return "\n".join(lines)
