"""Result folder of a run: tokenizer, settings and model card next to the weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from inbedder.backbones.file_checks import ADAPTER_WEIGHTS
from inbedder.backbones.hub import SETTINGS_FILE
from inbedder.io.files import atomic_write
from inbedder.models.checksums import write_checksums
from inbedder_finetune.answering.answering_recipe import AnsweringRecipe
from inbedder_finetune.answering.qa_rows import get_source_name
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.model_card import render_card, save_curve


def save_result(trainer: Any, recipe: AnsweringRecipe, kind: str, rows: Sequence[Row], seconds: float, output: Path) -> None:
    """Write the files that the trainer's ``save_model`` does not write.

    Args:
        trainer: The trainer, after training.
        recipe: The recipe of the run, with the micro-batch that it chose.
        kind: The model's family.
        rows: The training rows.
        seconds: Training time in seconds.
        output: Folder with the weights.
    """
    trainer.processing_class.save_pretrained(output)
    (output / "training_args.bin").unlink(missing_ok=True)  # the trainer's pickle; nothing reads it
    if recipe.lora:
        _set_base_name(output, recipe.model)
        _cast_weights(output / ADAPTER_WEIGHTS, recipe.lora.save_dtype)
    is_soft, options = recipe.objective.pooling == "soft-gen", recipe.options
    base_encoder = recipe.model if recipe.late_interaction else None  # whose vectors are a part of the model's
    settings = {
        "base": recipe.model if recipe.lora else None,
        "template": recipe.template,
        "mask_length": recipe.mask_length if kind == "masked" and isinstance(recipe.mask_length, int) else None,
        "late_interaction": recipe.late_interaction or None,
        "language_directions": None if recipe.languages is None else recipe.languages.directions,
        "base_encoder": options.base_encoder or base_encoder,
        "normalize": (recipe.late_interaction or None) if options.normalize is None else options.normalize,
        "beside": options.beside,
        "question_adapter": recipe.has_question_adapter or None,
        "pooling": "soft-gen" if is_soft else None,
        "max_new_tokens": recipe.objective.soft_tokens if is_soft else options.max_new_tokens,
    }
    settings = {key: value for key, value in settings.items() if value is not None}
    licences = {get_source_name(source): source.licence for source in recipe.data.sources}
    summary = (
        f'{recipe.model}, fine-tuned by inbedder to answer in a few content words. `InBedder("{output.name}")` loads it with the '
        "template of its training (`inbedder.json`)."
    )
    commits = {f"{source.hub} at commit {source.revision}": None for source in recipe.data.sources if source.hub}
    if commits:
        summary += f" Data from the hub: {', '.join(commits)}."
    history = trainer.state.log_history
    text = render_card(recipe, summary, licences, [row.source for row in rows], history, seconds)
    for name, content in ((SETTINGS_FILE, json.dumps(settings, indent=1)), ("README.md", text)):
        with atomic_write(output / name) as temporary:
            temporary.write_text(content, encoding="utf-8")
    write_checksums(output)
    save_curve(history, output / "curve.png")


def _cast_weights(path: Path, dtype: str) -> None:
    """Cast the weights of a file to a dtype."""
    weights = {name: tensor.to(getattr(torch, dtype)) for name, tensor in load_file(path).items()}
    with atomic_write(path) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})


def _set_base_name(adapter: Path, base: str) -> None:
    """Set the adapter's base to the recipe's model, in place of the local folder that peft records."""
    path = adapter / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
