#!/usr/bin/env python3
"""Combine the results of train_instructor.sh: one model per row order, with its seeds and the share of underfitted rows.

    python scripts/train/instructor_results.py runs/instructor finetune/results/instructor.json

It reads ``measured.json`` of the first folder, written by ``inbedder evaluate``. Results without an instruction are dropped for
models that answer.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from inbedder_evaluation.results import Cell, load_cells, save_cells
from inbedder_finetune.contrastive.train_contrastive import load_training_pairs
from inbedder_finetune.contrastive.data_cube import UNDERFITTING_FILE, record_underfitting
from inbedder_finetune.registry import read_method

RECIPE = Path(__file__).parents[2] / "finetune" / "recipes" / "instructor-minilm.yaml"
ORDERS = {
    f"{order}{run}": f"INSTRUCTOR-style, {name}{schedule}"
    for run, schedule in (("", ""), ("-2e-5", ", 2e-5"), ("-longer", ", 2e-5, two epochs"))
    for order, name in (("drawn", "drawn order"), ("data-cube", "Data-CUBE's order"))
}
ANSWERING = {"runs/objectives/both": "answering (mini's recipe), 100 steps", "mini": "mini"}
RUN = re.compile(r"\S*/((?:drawn|data-cube)(?:-2e-5|-longer)?)-(\d+)")


def rename_model(cell: Cell) -> Cell:
    """Rename the model of a result after its row order, and set its seed."""
    match = RUN.match(cell.model)
    if not match:
        return replace(cell, model=ANSWERING.get(cell.model, cell.model))
    metadata = {**cell.metadata, "run": match[0].rsplit("/", 1)[1], "run_revision": cell.model_revision}
    return replace(cell, model=RUN.sub(ORDERS[match[1]], cell.model), model_revision="", seed=int(match[2]), metadata=metadata)


def read_underfitting(runs: Path) -> Iterator[Cell]:
    """Yield the percentage of training rows with a margin below 0.05, before and after training."""
    for folder in sorted(path.parent for path in runs.glob("*/modules.json")):
        order, seed = folder.name.rsplit("-", 1)
        started = time.time()
        if not (folder / UNDERFITTING_FILE).exists():
            recipe = read_method(RECIPE, [f"data.folder={runs}", f"training.seed={seed}"])[1]
            record_underfitting(load_training_pairs(recipe)[0], recipe.model, folder, int(seed))
        underfitting = json.loads((folder / UNDERFITTING_FILE).read_text(encoding="utf-8"))
        shares = {name: round(100 * underfitting[name]["overall"], 2) for name in ("after", "before")}
        degrees = {name: underfitting[name]["degrees"] for name in shares}
        seconds = round(time.time() - started, 1)
        yield Cell(ORDERS[order], "", "underfitted rows", "", "raw", int(seed), "after", shares, "", seconds, degrees)


if __name__ == "__main__":
    runs, output = map(Path, sys.argv[1:])
    dropped_models = {f"{model}, no instruction" for model in ANSWERING}
    cells = [rename_model(cell) for cell in load_cells(runs / "measured.json") if cell.model not in dropped_models]
    cells += read_underfitting(runs)
    save_cells({cell.key: cell for cell in cells}.values(), output)
