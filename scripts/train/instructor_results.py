#!/usr/bin/env python3
"""Combine the results of train_instructor.sh: one model per kind of batches, with its seeds.

    python scripts/train/instructor_results.py runs/instructor/measured.json finetune/results/instructor.json

The results of the trained models, with instructions, replace those in the second file. Its other models, which no training
changes, are kept, and their tasks are the ones that are combined.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from inbedder_evaluation.results import Cell, load_cells, save_cells

TRAINED = "INSTRUCTOR-style, "
BATCHES = {"random": "batches of random rows", "task": "batches of one task", "data-cube": "Data-CUBE's order"}
RUN = re.compile(rf"\S*/({'|'.join(BATCHES)})-(\d+)")


def rename_model(cell: Cell) -> Cell:
    """Rename the model of a result after its batches, and set its seed."""
    match = RUN.match(cell.model)
    if match is None:
        raise SystemExit(f"error: {cell.model} is not a model of train_instructor.sh.")
    metadata = {**cell.metadata, "run": match[0].rsplit("/", 1)[1], "run_revision": cell.model_revision}
    model = RUN.sub(TRAINED + BATCHES[match[1]], cell.model)
    return replace(cell, model=model, model_revision="", seed=int(match[2]), metadata=metadata)


if __name__ == "__main__":
    measured, output = map(Path, sys.argv[1:])
    cells = [cell for cell in load_cells(output) if not cell.model.startswith(TRAINED)]
    tasks = {cell.task for cell in cells}
    selected = (cell for cell in load_cells(measured) if cell.task in tasks and cell.vectors == "raw")
    cells += [rename_model(cell) for cell in selected if not cell.model.endswith(", no instruction")]
    save_cells({cell.key: cell for cell in cells}.values(), output)
