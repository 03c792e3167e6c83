"""Training a conditional encoder (C-STS, Deshpande et al. 2023, section 4.1), the method ``conditional`` of a recipe.

``rows`` are read, ``trainer`` learns them, and the result is a folder that ``ConditionalEncoder.load`` loads.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inbedder.conditional.config import check_place
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.conditional.rated_rows import Rated, contrasting, read_rated
from inbedder.errors import RecipeError
from inbedder.io.files import atomic_write
from inbedder.models.checksums import write_checksums
from inbedder_finetune.conditional.conditional_recipe import ConditionalRecipe, parse_recipe
from inbedder_finetune.conditional.conditional_trainer import make_examples, make_trainer
from inbedder_finetune.conditional.rated_pairs import PairSampler, carve_development, draw_pairs, find_file, sentences_of
from inbedder_finetune.model_card import save_curve
from inbedder_finetune.preflight import check_reporting, check_room, count_processes
from inbedder_finetune.training_run import checkpoint_to_resume, identity, lora_config, note_run, train, with_adapters

__all__ = ["finetune", "load_rated", "parse_recipe", "preview"]

logger = logging.getLogger(__name__)

KNOBS = "a smaller training.batch_size or encoding.max_length"


def load_rated(recipe: ConditionalRecipe) -> tuple[list[Rated], list[Rated]]:
    """Read a recipe's rows.

    Args:
        recipe: Files, objective and seed.

    Returns:
        The learned rows, and those of the validation (none where the recipe names none).

    Raises:
        RecipeError: When a file is missing, two sentences are both learned and watched, or nothing is left to learn (for Quad,
            no pair with an order).
        InputError: When a file's rows cannot be used (``read_rated``, ``carve_development``, ``draw_pairs``).
    """
    data = recipe.data
    found: list[list[Rated]] = []
    for name, split in ((data.train, "train"), (data.validation, "validation")):
        path = find_file(name or "", data.folder)
        if name is not None and not path.is_file():
            raise RecipeError(f"No file {path}. Set data.folder to where {name} lies.")
        found.append([] if name is None else read_rated(path, split, skip_bad=data.skip_bad))
    learned, watched = found
    if data.development:
        learned, watched = carve_development(learned, data.development)
    known = {sentences_of(row): row for row in reversed(learned)}
    for row in watched:
        same = known.get(sentences_of(row))
        if same:
            raise RecipeError(
                f"Row {same.row} of {data.train} and row {row.row} of {data.validation} hold the same two sentences, so the "
                "validation would measure what was learned. Give two files, one with a column split, or data.validation=null."
            )
    if recipe.objective.loss != "mse":
        learned = _for_quad(learned, recipe)
    if not learned:
        raise RecipeError(f"{data.train} leaves no row to learn.")
    return draw_pairs(learned, data.pairs, recipe.training.seed), watched


def _for_quad(rows: list[Rated], recipe: ConditionalRecipe) -> list[Rated]:
    """What an objective with Quad learns: of pairs without order, the MSE terms alone, where it has such."""
    ordered = contrasting(rows)
    if not ordered:
        raise RecipeError(
            f"No pair of {recipe.data.train} has a higher- and a lower-rated condition, so Quad has nothing to learn: set "
            "objective.loss=mse."
        )
    has_mse = recipe.objective.loss == "quad+mse"
    if len(ordered) < len(rows):
        pairs = len({row.pair for row in rows}) - len(ordered) // 2
        logger.warning("%d pairs without order %s.", pairs, "add their MSE terms alone" if has_mse else "are left out of Quad")
    return rows if has_mse else ordered


def preview(recipe: ConditionalRecipe) -> str:
    """The dry run of a recipe: nothing is trained or written.

    Args:
        recipe: Encoder and data.

    Returns:
        The inputs and scaled ratings of the first two pairs, and how many rows there are.
    """
    learned, watched = load_rated(recipe)
    encoder = ConditionalEncoder.of_base(recipe.model, recipe.encoding)
    first = [learned[place] for group in PairSampler(learned).groups[:2] for place in group]
    lines = []
    for row, example in zip(first, make_examples(encoder, first, recipe), strict=True):
        lines += [f"== row {row.row}, rating {row.label:g}, scaled {example['target']:g}"]
        lines += [f"input: {encoder.tokenizer.decode(ids)!r}" for ids in example["parts"]]
    counts = (("learned", learned), ("validation", watched))
    lines += ["", *(f"{name:10s} {len(rows):6,d} rows {len({row.pair for row in rows}):6,d} pairs" for name, rows in counts)]
    return "\n".join(lines)


def finetune(recipe: ConditionalRecipe) -> Path:
    """Train as a recipe says, with checkpoints from which ``training.resume`` goes on exactly.

    Args:
        recipe: Encoder, data, objective and schedule.

    Returns:
        The folder of the result, which ``ConditionalEncoder.load`` loads (see ``inbedder.conditional.config``), with a
        card and the curve.

    Raises:
        RecipeError: When the rows do not fit, several processes are started, memory or disk run out, or the output holds another
            run's checkpoints or another kind of encoder.
        InputError: When the rows cannot be used.
        ModelError: When the base cannot be loaded, or the encoding does not fit it.
    """
    from transformers import set_seed

    output = Path(recipe.training.output)
    run = identity(recipe)
    last = checkpoint_to_resume(output, run, resume=recipe.training.resume)
    if count_processes() > 1:
        raise RecipeError(
            "The method conditional trains in one process: both rows of a pair stand in one batch. Start it without torchrun."
        )
    check_reporting(recipe.training.report_to)
    check_place(output, recipe.encoding)
    learned, watched = load_rated(recipe)
    set_seed(recipe.training.seed)
    encoder = ConditionalEncoder.of_base(recipe.model, recipe.encoding)
    if recipe.lora:
        _add_lora(encoder, recipe)
    check_room(output, encoder)
    note_run(output, run)
    logger.info("%d rows are learned, %d are watched", len(learned), len(watched))
    trainer = make_trainer(encoder, learned, watched, recipe)
    started = time.time()
    train(trainer, output, last, KNOBS)
    if recipe.lora:
        encoder.backbone = encoder.backbone.merge_and_unload()
    encoder.save(output, {"base": recipe.model, "recipe": asdict(recipe)})
    write_checksums(output)
    history = trainer.state.log_history
    with atomic_write(output / "README.md") as temporary:
        temporary.write_text(card(recipe, learned, history, time.time() - started), encoding="utf-8")
    save_curve(history, output / "curve.png")
    return output


def _add_lora(encoder: ConditionalEncoder, recipe: ConditionalRecipe) -> None:
    """Adapt the backbone; a pooler of its own is trained whole, as the head is."""
    assert recipe.lora is not None
    config = lora_config(recipe.lora)
    if recipe.encoding.pooler == "pooler":
        config.modules_to_save = sorted({*(config.modules_to_save or ()), "pooler"})
    encoder.backbone = with_adapters(encoder.backbone, config, recipe.lora.start)


def card(recipe: ConditionalRecipe, learned: Sequence[Rated], history: Sequence[dict[str, Any]], seconds: float) -> str:
    """The model card of a run.

    Args:
        recipe: What was asked.
        learned: What was learned.
        history: The trainer's log.
        seconds: How long it took.

    Returns:
        Markdown.
    """
    name = Path(recipe.training.output).name
    epochs = [(entry["epoch"], entry["eval_spearman"], entry["eval_pearson"]) for entry in history if "eval_spearman" in entry]
    rows = "\n".join(f"| {epoch:g} | {spearman:.1f} | {pearson:.1f} |" for epoch, spearman, pearson in epochs)
    also = (
        f'`InBedder("{name}")` embeds with it under a condition, and sentence-transformers loads it too.'
        if recipe.encoding.is_plain
        else "It gives a score for two sentences, no vector for one: `InBedder` does not load it."
    )
    return f"""# {name}

A {recipe.encoding.kind}-encoder on {recipe.model} for the similarity of two sentences under a condition, fine-tuned by inbedder.
`inbedder.conditional.ConditionalEncoder.load("{name}").similarity(sentence1, sentence2, condition=...)` gives its score. {also}

{len(learned):,} rows of {len({row.pair for row in learned}):,} pairs from {recipe.data.train}, {seconds / 60:.1f} minutes.

| epoch | validation Spearman | Pearson |
| --- | --: | --: |
{rows}

```json
{json.dumps(asdict(recipe), indent=1)}
```
"""
