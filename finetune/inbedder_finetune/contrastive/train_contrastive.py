"""Contrastive fine-tuning of an encoder with instructions (INSTRUCTOR paper, section 2.2 and appendix A)."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.backbones.adapters import merge_lora
from inbedder.backbones.sentence_modules import find_sentence_folder
from inbedder.backbones.transformer import find_position_limit
from inbedder.errors import RecipeError
from inbedder.io.files import atomic_write
from inbedder.models.bundled import resolve_name
from inbedder.models.checksums import write_checksums
from inbedder.runtime.transformers_output import silence_transformers
from inbedder_finetune.answering.qa_rows import hold_out
from inbedder_finetune.contrastive.contrastive_recipe import ContrastiveRecipe, parse_recipe
from inbedder_finetune.contrastive.contrastive_trainer import make_trainer
from inbedder_finetune.contrastive.data_cube import make_data_cube_batches, record_underfitting
from inbedder_finetune.contrastive.instructed_texts import (
    UNPOOLED_MASK,
    check_instructions,
    make_prompt_tokenizer,
    skip_instructions,
    tokenize_texts,
)
from inbedder_finetune.contrastive.pair_batches import PairBatchSampler
from inbedder_finetune.contrastive.pairs import Pair, load_pairs
from inbedder_finetune.model_card import render_card, save_curve
from inbedder_finetune.preflight import check_disk_space, check_reporting, count_processes
from inbedder_finetune.training_run import describe_run, find_checkpoint, make_lora_config, record_run, train

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["finetune", "load_training_pairs", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)

MEMORY_HINT = "a smaller training.micro_batch, a shorter max_length, training.gradient_checkpointing=true, or a lora section"


def load_training_pairs(recipe: ContrastiveRecipe) -> tuple[list[Pair], list[Pair]]:
    """Load the pairs of a recipe, in an order that depends on the recipe only.

    Args:
        recipe: Data and seed.

    Returns:
        The training pairs, whose indices ``finetune(batches=)`` takes, and the held-out pairs.
    """
    pairs = load_pairs(recipe.data, recipe.training.seed)
    return hold_out(pairs, recipe.data.held_out, recipe.training.seed)


def load_encoder(recipe: ContrastiveRecipe) -> Any:
    """Load the sentence-transformers model of a recipe, with mean pooling that skips instructions, and normalization.

    Args:
        recipe: Model and length.

    Returns:
        A SentenceTransformer in float32.

    Raises:
        RecipeError: If the model does not exist, does not pool by the mean, has no fast tokenizer, or takes fewer tokens than
            ``max_length``.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    try:
        with silence_transformers(expected_gaps=True):
            model = SentenceTransformer(
                str(find_sentence_folder(resolve_name(recipe.model))),
                model_kwargs={"dtype": "float32"},
                trust_remote_code=False,
            )
    except Exception as error:  # a damaged file can raise anything
        raise RecipeError(
            f"Cannot load {recipe.model}: {' '.join(str(error).split())[:400]}. Give a hub id or a folder."
        ) from error
    pooling = next((module for module in model if isinstance(module, Pooling)), None)
    if pooling is None or pooling.pooling_mode != "mean":
        raise RecipeError(
            f"{recipe.model} does not pool by the mean, as INSTRUCTOR does. Choose an encoder with mean pooling, or without any."
        )
    pooling.include_prompt = False
    skip_instructions(pooling)
    if not any(isinstance(module, Normalize) for module in model):
        model.append(Normalize())
    if not model.tokenizer.is_fast:
        raise RecipeError(f"{recipe.model} has no fast tokenizer (tokenizer.json). Convert it with the package tokenizers.")
    model.tokenizer.padding_side = model.tokenizer.truncation_side = "right"
    limit = find_position_limit(model.transformers_model)
    if limit is not None and recipe.max_length > limit:
        raise RecipeError(f"{recipe.model} takes at most {limit} tokens. Set max_length to {limit} or less.")
    model.max_seq_length = recipe.max_length
    return model


def finetune(
    recipe: ContrastiveRecipe, batches: Sequence[Sequence[int]] | None = None, *, callbacks: Sequence[TrainerCallback] = ()
) -> Path:
    """Fine-tune an encoder by a recipe; a run with checkpoints of the same recipe resumes exactly.

    Args:
        recipe: Model, data and schedule.
        batches: Indices into ``load_training_pairs(recipe)[0]`` of each batch, all of one task, in the order of every epoch. None
            makes the recipe's batches, in Data-CUBE's order if it has a curriculum, in a random order otherwise.
        callbacks: transformers' callbacks, which see each step and may stop training early.

    Returns:
        Folder of the result, a sentence-transformers model, with a model card and the loss curve.

    Raises:
        RecipeError: If the model or the batches do not fit, memory or disk space runs out, or the output folder holds another
            run.
    """
    from transformers import set_seed

    if count_processes() > 1:
        raise RecipeError("Contrastive training runs in one process. Start it without torchrun and accelerate.")
    check_reporting(recipe.training.report_to)
    output = Path(recipe.training.output)
    size, seed = recipe.training.batch_size, recipe.training.seed
    train_pairs, held_out_pairs = load_training_pairs(recipe)
    if batches is None and recipe.curriculum is not None:
        batches, anchors = make_data_cube_batches(train_pairs, recipe.curriculum, size, seed)
        train_pairs = [replace(row, is_anchor=is_anchor) for row, is_anchor in zip(train_pairs, anchors, strict=True)]
    order = {} if batches is None else {"batches": _hash_batches(batches)}
    run = describe_run(asdict(recipe), **order)
    checkpoint = find_checkpoint(output, run)
    set_seed(recipe.training.seed)
    mixes_tasks = recipe.batches == "random"
    train_batches = PairBatchSampler(train_pairs, size, seed, mixes_tasks=mixes_tasks, batches=batches)
    held_out_batches = PairBatchSampler(held_out_pairs, size, seed, mixes_tasks=mixes_tasks) if held_out_pairs else None
    model = load_encoder(recipe)
    check_instructions(
        make_prompt_tokenizer(model.tokenizer, recipe.max_length), _list_instructions([*train_pairs, *held_out_pairs])
    )
    if recipe.lora is not None:
        model.add_adapter(make_lora_config(recipe.lora))
    check_disk_space(output, model)
    record_run(output, run)
    tasks = {row.task for row in train_pairs}
    logger.info("%d rows of %d tasks, %d steps per epoch", len(train_pairs), len(tasks), len(train_batches))
    trainer = make_trainer(model, train_batches, held_out_batches, recipe)
    started = time.time()
    train(trainer, output, checkpoint, MEMORY_HINT, callbacks)
    _save(trainer.model, recipe)
    write_checksums(output)
    text = _render_card(recipe, train_pairs, trainer.state.log_history, time.time() - started)
    with atomic_write(output / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    save_curve(trainer.state.log_history, output / "curve.png")
    if recipe.curriculum is not None:
        record_underfitting(train_pairs, recipe.model, output, seed)
    return output


def _hash_batches(batches: Sequence[Sequence[int]]) -> str:
    return hashlib.sha256(json.dumps([[int(row) for row in batch] for batch in batches]).encode()).hexdigest()[:16]


def _list_instructions(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(text.instruction for row in pairs for text in (row.query, row.positive, *row.negatives)))


def _save(model: Any, recipe: ContrastiveRecipe) -> None:
    """Save the model; adapters are first merged into a newly loaded base."""
    if recipe.lora is None:
        model.save_pretrained(recipe.training.output, create_model_card=False)
        return
    merged_model = load_encoder(recipe)
    with tempfile.TemporaryDirectory() as adapter:
        model.transformers_model.save_pretrained(adapter)
        if not merge_lora(merged_model.transformers_model, Path(adapter)):
            raise RecipeError(
                f"The adapter is not plain LoRA and cannot be merged. A checkpoint in {recipe.training.output} holds it."
            )
    merged_model.save_pretrained(recipe.training.output, create_model_card=False)


def _render_card(recipe: ContrastiveRecipe, rows: Sequence[Pair], history: Sequence[dict[str, Any]], seconds: float) -> str:
    name = Path(recipe.training.output).name
    instructions = _list_instructions(rows)
    examples = "\n".join(f"- `{instruction!r}`" if instruction else "- none" for instruction in instructions[:20])
    summary = (
        f"{recipe.model}, fine-tuned by inbedder's contrastive method: it reads instruction and text together, and pools the "
        f"text's states.\n"
        f'`SentenceTransformer("{name}").encode(texts, prompt=instruction)` runs it without remote code.\n\n'
        f"It was trained with {len(instructions):,} instructions{', such as' if len(instructions) > 20 else ''}:\n\n{examples}"
    )
    licences = {source.path: source.licence for source in recipe.data.sources}
    return render_card(asdict(recipe), summary, licences, [row.source for row in rows], history, seconds)


def preview(recipe: ContrastiveRecipe) -> str:
    """Describe the training data of a recipe as the encoder reads it; train and write nothing.

    Args:
        recipe: Model and data.

    Returns:
        The first row of each source with its pooled tokens, and a table of the tasks.
    """
    train_pairs, held_out_pairs = load_training_pairs(recipe)
    model = load_encoder(recipe)
    check_instructions(
        make_prompt_tokenizer(model.tokenizer, recipe.max_length), _list_instructions([*train_pairs, *held_out_pairs])
    )
    lines = []
    for source in dict.fromkeys(row.source for row in train_pairs):
        first = next(row for row in train_pairs if row.source == source)
        lines.append(f"== {source}")
        for name, text in (
            ("query", first.query),
            ("pos", first.positive),
            *(("neg", negative) for negative in first.negatives),
        ):
            inputs = tokenize_texts(make_prompt_tokenizer(model.tokenizer, recipe.max_length), [text])
            pooled = inputs["input_ids"][0][(inputs["attention_mask"] * (1 - inputs[UNPOOLED_MASK]))[0].bool()]
            lines += [
                f"{name}: {text.instruction + text.text!r}",
                f"pooled: {model.tokenizer.convert_ids_to_tokens(pooled.tolist())}",
            ]
    lines += ["", "task  rows  negatives"]
    for task in dict.fromkeys(row.task for row in train_pairs):
        task_pairs = [row for row in train_pairs if row.task == task]
        lines.append(f"{task}  {len(task_pairs):,}  {len(task_pairs[0].negatives)}")
    return "\n".join(lines)
