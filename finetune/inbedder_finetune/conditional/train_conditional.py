"""Training of a conditional encoder (C-STS, Deshpande et al. 2023, section 4.1), the method ``conditional`` of a recipe."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbedder.conditional.config import check_folder
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.conditional.rated_rows import RatedPair, read_rated_pairs, select_contrasting
from inbedder.errors import RecipeError
from inbedder.io.files import atomic_write
from inbedder.models.checksums import write_checksums
from inbedder_finetune.conditional.conditional_recipe import ConditionalData, ConditionalRecipe, parse_recipe
from inbedder_finetune.conditional.conditional_trainer import make_examples, make_trainer
from inbedder_finetune.conditional.rated_pairs import PairSampler, find_file, get_sentences, sample_pairs, split_development
from inbedder_finetune.model_card import save_curve
from inbedder_finetune.preflight import check_disk_space, check_reporting, count_processes
from inbedder_finetune.training_run import add_adapters, describe_run, find_checkpoint, make_lora_config, record_run, train

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["finetune", "load_rated", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)

MEMORY_HINT = "a smaller training.batch_size or encoding.max_length"


def load_rated(recipe: ConditionalRecipe) -> tuple[list[RatedPair], list[RatedPair]]:
    """Load the training rows and validation rows of a recipe.

    Args:
        recipe: Files, objective and seed.

    Returns:
        The training rows and the validation rows; the latter may be empty.

    Raises:
        RecipeError: If a file is missing, two sentences are in both splits, or no training row (with Quad, no ordered pair)
            or no validation row is left.
        InputError: If a file's rows cannot be used (``read_rated_pairs``, ``split_development``, ``sample_pairs``).
    """
    data = recipe.data
    splits: list[list[RatedPair]] = []
    for name, split in ((data.train, "train"), (data.validation, "validation")):
        path = find_file(name or "", data.folder)
        if name is not None and not path.is_file():
            raise RecipeError(f"{path} does not exist. Set data.folder to the folder of {name}.")
        needs_condition = recipe.encoding.reads != "sentences"
        rows = read_rated_pairs(path, split, skip_bad=data.skip_bad, needs_condition=needs_condition) if name else []
        splits.append(rows)
    train_rows, validation_rows = splits
    if data.development_pairs:
        train_rows, validation_rows = split_development(train_rows, data.development_pairs)
    _check_overlap(train_rows, validation_rows, data)
    if recipe.objective.loss != "mse":
        train_rows = _select_quad_rows(train_rows, recipe)
    if not train_rows:
        raise RecipeError(f"{data.train} has no row to train on.")
    if data.validation is not None and not validation_rows:
        raise RecipeError(f"{data.validation} has no row to score. Correct its rows, or set data.validation=null.")
    return sample_pairs(train_rows, data.pairs, recipe.training.seed), validation_rows


def _check_overlap(train_rows: Sequence[RatedPair], validation_rows: Sequence[RatedPair], data: ConditionalData) -> None:
    """Raise an error for, or with ``allow_overlap`` report, two sentences that are in both splits."""
    row_by_sentences = {get_sentences(row): row for row in reversed(train_rows)}
    overlap = [row for row in validation_rows if get_sentences(row) in row_by_sentences]
    if overlap and not data.allow_overlap:
        train_row = row_by_sentences[get_sentences(overlap[0])]
        raise RecipeError(
            f"Row {train_row.row} of {data.train} and row {overlap[0].row} of {data.validation} hold the same two sentences, so "
            "the validation would score training rows. Give two files, one file with a column split, or data.validation=null; "
            "data.allow_overlap=true accepts the overlap."
        )
    if overlap:
        logger.warning("%d of %d validation rows have sentences of training rows.", len(overlap), len(validation_rows))


def _select_quad_rows(rows: list[RatedPair], recipe: ConditionalRecipe) -> list[RatedPair]:
    """Select the training rows of an objective with Quad: all rows if it has MSE terms, otherwise the ordered pairs."""
    ordered = select_contrasting(rows)
    if not ordered:
        raise RecipeError(
            f"No pair of {recipe.data.train} has a higher- and a lower-rated condition, so Quad cannot be computed: set "
            "objective.loss=mse."
        )
    has_mse = recipe.objective.loss == "quad+mse"
    if len(ordered) < len(rows):
        pairs = len({row.pair for row in rows}) - len(ordered) // 2
        logger.warning("%d pairs without order %s.", pairs, "have only MSE terms" if has_mse else "are skipped by Quad")
    return rows if has_mse else ordered


def preview(recipe: ConditionalRecipe) -> str:
    """Describe the training data of a recipe as the encoder reads it; train and write nothing.

    Args:
        recipe: Encoder and data.

    Returns:
        The inputs and scaled ratings of the first two pairs, and the numbers of rows.
    """
    train_rows, validation_rows = load_rated(recipe)
    encoder = ConditionalEncoder.of_base(recipe.model, recipe.encoding)
    first = [train_rows[index] for group in PairSampler(train_rows).groups[:2] for index in group]
    lines = []
    for row, example in zip(first, make_examples(encoder, first, recipe), strict=True):
        lines += [f"== row {row.row}, rating {row.label:g}, scaled {example['target']:g}"]
        lines += [f"input: {encoder.tokenizer.decode(ids)!r}" for ids in example["parts"]]
    splits = (("train", train_rows), ("validation", validation_rows))
    lines += ["", *(f"{name:10s} {len(rows):6,d} rows {len({row.pair for row in rows}):6,d} pairs" for name, rows in splits)]
    return "\n".join(lines)


def finetune(recipe: ConditionalRecipe, *, callbacks: Sequence[TrainerCallback] = ()) -> Path:
    """Train a conditional encoder by a recipe; a run with checkpoints of the same recipe resumes exactly.

    Args:
        recipe: Encoder, data, objective and schedule.
        callbacks: transformers' callbacks, which see each step and may stop training early.

    Returns:
        Folder of the result, which ``ConditionalEncoder.load`` loads (see ``inbedder.conditional.config``), with a model card and
        the loss curve.

    Raises:
        RecipeError: If the rows do not fit the recipe, several processes are started, memory or disk space runs out, or the
            output folder holds another run or another kind of encoder.
        InputError: If the rows cannot be used.
        ModelError: If the base cannot be loaded, or the encoding does not fit it.
    """
    from transformers import set_seed

    output = Path(recipe.training.output)
    run = describe_run(asdict(recipe))
    checkpoint = find_checkpoint(output, run)
    if count_processes() > 1:
        raise RecipeError(
            "The method conditional trains in one process, so that a batch holds both rows of a pair. Start it without torchrun."
        )
    check_reporting(recipe.training.report_to)
    check_folder(output, recipe.encoding)
    train_rows, validation_rows = load_rated(recipe)
    set_seed(recipe.training.seed)
    encoder = ConditionalEncoder.of_base(recipe.model, recipe.encoding)
    if recipe.lora:
        _add_lora(encoder, recipe)
    check_disk_space(output, encoder)
    record_run(output, run)
    logger.info("%d training rows, %d validation rows", len(train_rows), len(validation_rows))
    trainer = make_trainer(encoder, train_rows, validation_rows, recipe)
    started = time.time()
    train(trainer, output, checkpoint, MEMORY_HINT, callbacks)
    if recipe.lora:
        encoder.backbone = encoder.backbone.merge_and_unload()
    encoder.save(output, {"base": recipe.model})
    write_checksums(output)
    history = trainer.state.log_history
    with atomic_write(output / "README.md") as temporary:
        temporary.write_text(render_card(recipe, train_rows, history, time.time() - started), encoding="utf-8")
    save_curve(history, output / "curve.png")
    return output


def _add_lora(encoder: ConditionalEncoder, recipe: ConditionalRecipe) -> None:
    """Add adapters to the backbone; its own pooler is trained in full, like the head."""
    assert recipe.lora is not None
    config = make_lora_config(recipe.lora)
    if recipe.encoding.pooler == "pooler":
        config.modules_to_save = sorted({*(config.modules_to_save or ()), "pooler"})
    encoder.backbone = add_adapters(encoder.backbone, config, recipe.lora.init_adapter)


def render_card(
    recipe: ConditionalRecipe, train_rows: Sequence[RatedPair], history: Sequence[dict[str, Any]], seconds: float
) -> str:
    """Render the model card of a run.

    Args:
        recipe: The recipe of the run.
        train_rows: The training rows.
        history: The trainer's log.
        seconds: Training time in seconds.

    Returns:
        Markdown.
    """
    name = Path(recipe.training.output).name
    epochs = [(entry["epoch"], entry["eval_spearman"], entry["eval_pearson"]) for entry in history if "eval_spearman" in entry]
    rows = "\n".join(f"| {epoch:g} | {spearman:.1f} | {pearson:.1f} |" for epoch, spearman, pearson in epochs)
    usage = (
        f'`InBedder("{name}")` and sentence-transformers load it, too.'
        if recipe.encoding.is_plain
        else "It scores two sentences and has no vector for one, so `InBedder` does not load it."
    )
    load = f'inbedder.conditional.ConditionalEncoder.load("{name}")'
    return f"""# {name}

A {recipe.encoding.kind}-encoder on {recipe.model} for the similarity of two sentences under a condition, fine-tuned by inbedder.
`{load}.similarity(sentence1, sentence2, condition=...)` returns the score. {usage}

{len(train_rows):,} rows of {len({row.pair for row in train_rows}):,} pairs from {recipe.data.train}, {seconds / 60:.1f} minutes.

| epoch | validation Spearman | Pearson |
| --- | --: | --: |
{rows}

```json
{json.dumps(asdict(recipe), indent=1)}
```
"""
