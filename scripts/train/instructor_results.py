#!/usr/bin/env python3
"""Put the models of train_instructor.sh together: an order's seeds become one model, with the share of underfitted rows.

    python scripts/train/instructor_results.py runs/instructor finetune/results/instructor.json

Reads ``measured.json`` of the first folder, which ``inbedder evaluate`` made. Models that answer are kept under the instruction
alone.
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
from inbedder_finetune.curriculum.data_cube import UNDERFITTING_FILE, record_underfitting
from inbedder_finetune.registry import read_method

RECIPE = Path(__file__).parents[2] / "finetune" / "recipes" / "instructor-minilm.yaml"
ORDERS = {
    f"{order}{run}": f"INSTRUCTOR-style, {name}{how}"
    for run, how in (("", ""), ("-2e-5", ", 2e-5"), ("-longer", ", 2e-5, two epochs"))
    for order, name in (("drawn", "drawn order"), ("data-cube", "Data-CUBE's order"))
}
ANSWERING = {"runs/objectives/both": "answering (mini's recipe), 100 steps", "mini": "mini"}
RUN = re.compile(r"\S*/((?:drawn|data-cube)(?:-2e-5|-longer)?)-(\d+)")


def by_seed(cell: Cell) -> Cell:
    """A measurement of one trained model, named after its order and seed."""
    found = RUN.match(cell.model)
    if not found:
        return replace(cell, model=ANSWERING.get(cell.model, cell.model))
    metadata = {**cell.metadata, "run": found[0].rsplit("/", 1)[1], "run_revision": cell.model_revision}
    return replace(cell, model=RUN.sub(ORDERS[found[1]], cell.model), model_revision="", seed=int(found[2]), metadata=metadata)


def underfitted(runs: Path) -> Iterator[Cell]:
    """The share of learned rows whose margin is below 0.05, in percent, before training and after."""
    for folder in sorted(path.parent for path in runs.glob("*/modules.json")):
        order, seed = folder.name.rsplit("-", 1)
        started = time.time()
        if not (folder / UNDERFITTING_FILE).exists():
            recipe = read_method(RECIPE, [f"data.folder={runs}", f"training.seed={seed}"])[1]
            record_underfitting(load_training_pairs(recipe)[0], recipe.model, folder, int(seed))
        found = json.loads((folder / UNDERFITTING_FILE).read_text(encoding="utf-8"))
        shares = {when: round(100 * found[when]["overall"], 2) for when in ("after", "before")}
        about = {when: found[when]["degrees"] for when in shares}
        seconds = round(time.time() - started, 1)
        yield Cell(ORDERS[order], "", "underfitted rows", "", "raw", int(seed), "after", shares, "", seconds, about)


if __name__ == "__main__":
    runs, output = map(Path, sys.argv[1:])
    measured = [
        cell for cell in load_cells(runs / "measured.json") if cell.model not in {f"{one}, no instruction" for one in ANSWERING}
    ]
    cells = [by_seed(cell) for cell in measured] + list(underfitted(runs))
    save_cells({cell.key: cell for cell in cells}.values(), output)
