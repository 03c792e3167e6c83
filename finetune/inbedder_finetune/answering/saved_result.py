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
from inbedder_finetune.answering.plan import Plan
from inbedder_finetune.answering.qa_rows import get_source_name
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.model_card import render_card, save_curve


def save_result(trainer: Any, plan: Plan, kind: str, rows: Sequence[Row], seconds: float) -> None:
    """Write the files that the trainer's ``save_model`` does not write.

    Args:
        trainer: The trainer, after training.
        plan: The plan of the run, with the micro-batch that it chose; its output holds the weights.
        kind: The model's family.
        rows: The training rows.
        seconds: Training time in seconds.
    """
    output, model = plan.output, plan.model
    trainer.processing_class.save_pretrained(output)
    (output / "training_args.bin").unlink(missing_ok=True)  # the trainer's pickle; nothing reads it
    if model.lora:
        _set_base_name(output, model.name)
        _cast_weights(output / ADAPTER_WEIGHTS, model.lora.save_dtype)
    result = {key: value for key, value in plan.result.items() if key != "mask_length" or kind == "masked"}
    licences = {get_source_name(source): source.licence for source in plan.data.sources}
    summary = (
        f'{model.name}, fine-tuned by inbedder to answer in a few content words. `InBedder("{output.name}")` loads it with the '
        "template of its training (`inbedder.json`)."
    )
    commits = {f"{source.hub} at commit {source.revision}": None for source in plan.data.sources if source.hub}
    if commits:
        summary += f" Data from the hub: {', '.join(commits)}."
    history = trainer.state.log_history
    settings = {**plan.settings, "training": {**plan.settings["training"], "micro_batch": plan.micro_batch}}
    text = render_card(settings, summary, licences, [row.source for row in rows], history, seconds)
    for name, content in ((SETTINGS_FILE, json.dumps(result, indent=1)), ("README.md", text)):
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
