"""Time steps of fine-tuning at 7B parameters through inbedder's own trainer: QLoRA on nf4 weights, and LoRA in bfloat16 autocast.

Both take the recipe llama-2-7b-qlora, on a checkpoint of random weights and shipped rows, for a few steps.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from inbedder_finetune.answering import train_answering
from inbedder_finetune.answering.answering_trainer import AnsweringTrainer
from inbedder_finetune.answering.examples import IGNORE_INDEX
from inbedder_finetune.recipe import read_settings
from scripts.bench.gpu.base import ROOT
from scripts.bench.gpu.shapes import SHAPES, TINY_SHAPES, fill_config, load_tokenizer
from scripts.bench.gpu.timing import Record, measure_memory

MEMORY_FOLDER, MIN_FREE_BYTES = Path("/dev/shm"), 20 * 2**30
"""A folder in memory, which is used if it has so much room: a checkpoint of 7B parameters takes 13 GB."""
STEPS = 6
METHODS = {"QLoRA, nf4": "nf4", "LoRA, bfloat16 autocast": None}


class TimedTrainer(AnsweringTrainer):
    """The trainer, which also notes the seconds and tokens of each step."""

    steps: list[dict[str, float]]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Compute the gradients of one step, and note how long it took."""
        _synchronize()
        start = time.perf_counter()
        loss = super().training_step(model, inputs, num_items_in_batch)
        _synchronize()
        batches = inputs["micro_batches"]
        tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
        labels = sum(int((batch["labels"] != IGNORE_INDEX).sum()) for batch in batches)
        TimedTrainer.steps.append(
            {"seconds": time.perf_counter() - start, "tokens": tokens, "answer tokens": labels, "loss": float(loss)}
        )
        return loss


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def write_checkpoint(folder: Path, device: str, tiny: bool) -> Path:
    """Write a checkpoint of random weights in bfloat16, with a token that ends answers."""
    tokenizer = load_tokenizer()
    tokenizer.eos_token = tokenizer.sep_token
    config = fill_config(TINY_SHAPES["tiny"] if tiny else SHAPES["Llama-7B"], tokenizer)
    config.eos_token_id = tokenizer.eos_token_id
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_recipe(checkpoint: Path, output: Path, quantization: str | None, tiny: bool) -> Any:
    """Make the recipe of a run of a few steps."""
    values = read_settings("llama-2-7b-qlora")
    values |= {"model": str(checkpoint), "quantization": quantization}
    values["data"] = {"folder": str(ROOT / "tests" / "data" / "tiny"), "cache": None, "sources": [{"path": "qa.jsonl"}]}
    training = {"output": str(output), "max_steps": 2 if tiny else STEPS, "log_steps": 1, "save_steps": 10**6}
    if tiny:
        training |= {"batch_size": 4, "micro_batch": 2}
        values["lora"] = {"r": 2, "alpha": 4}
    values["training"] |= training
    return train_answering.parse_recipe(values)


def measure_method(checkpoint: Path, quantization: str | None, device: str, tiny: bool) -> dict[str, Any]:
    """Fine-tune for a few steps, and describe them; the first warms up."""
    TimedTrainer.steps = []
    output = checkpoint.parent / f"result-{quantization}"
    start = time.perf_counter()
    with measure_memory(device) as memory:
        train_answering.finetune(make_recipe(checkpoint, output, quantization, tiny))
    steps = TimedTrainer.steps
    shutil.rmtree(output)
    timed_steps = steps[1:]
    seconds = statistics.median(step["seconds"] for step in timed_steps)
    return {
        "steps": len(steps),
        "seconds per step": round(seconds, 3),
        "seconds of each step": [round(step["seconds"], 3) for step in steps],
        "tokens per second": round(sum(step["tokens"] for step in timed_steps) / sum(step["seconds"] for step in timed_steps)),
        "tokens per step": round(statistics.mean(step["tokens"] for step in timed_steps)),
        "losses": [round(step["loss"], 3) for step in steps],
        "seconds with loading and saving": round(time.perf_counter() - start, 1),
        **memory,
    }


def measure_stage(device: str, tiny: bool, record: Record) -> None:
    """Measure each method of ``METHODS``; one that fails is recorded with its error, and the next one follows."""
    train_answering.AnsweringTrainer = TimedTrainer  # type: ignore[misc]
    has_room = MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free > MIN_FREE_BYTES
    failures = []
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if has_room else None) as temporary:
        start = time.perf_counter()
        checkpoint = write_checkpoint(Path(temporary, "checkpoint"), device, tiny)
        record("shape", json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["model_type"])
        record("seconds to write the checkpoint", round(time.perf_counter() - start, 1))
        for name, quantization in METHODS.items():
            try:
                record(name, measure_method(checkpoint, quantization, device, tiny))
            except Exception as error:  # the other method is still worth measuring
                failures.append(error)
                record(name, {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"})
    if failures:
        raise failures[0]
