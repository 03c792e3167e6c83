"""The folder that a run leaves: beside the weights its tokenizer, settings and card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.io.files import atomic_write
from inbedder.models.checksums import write_checksums
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe
from inbedder_finetune.answering.qa_rows import name_of
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.model_card import card, save_curve


def save_result(
    trainer: Any, recipe: AnsweringRecipe, micro_batch: int, rows: Sequence[Row], seconds: float, output: Path
) -> None:
    """Write what the trainer's own ``save_model`` leaves out.

    Args:
        trainer: After training.
        recipe: The recipe of the run.
        micro_batch: Rows that were held at once.
        rows: Learned rows.
        seconds: Time of training.
        output: Folder with the weights.
    """
    recipe = replace(recipe, training=replace(recipe.training, micro_batch=micro_batch))
    trainer.processing_class.save_pretrained(output)
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
    licences = {name_of(source): source.licence for source in recipe.data.sources}
    summary = (
        f'{recipe.model}, fine-tuned by inbedder to answer in a few content words. `InBedder("{output.name}")` embeds with it '
        "under an instruction,\nin the template that it was trained with (`inbedder.json`)."
    )
    history = trainer.state.log_history
    text = card(recipe, summary, licences, [row.source for row in rows], history, seconds)
    for name, content in ((SETTINGS_FILE, json.dumps(settings, indent=1)), ("README.md", text)):
        with atomic_write(output / name) as temporary:
            temporary.write_text(content, encoding="utf-8")
    write_checksums(output)
    save_curve(history, output / "curve.png")


def _name_base(adapter: Path, base: str) -> None:
    """Let the adapter name its base as the recipe does, not by the folder that it was read from."""
    path = adapter / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
