"""What the InBedder paper's models reached, and whether a measurement on its sets found the same.

``data/paper.json`` holds the numbers of the authors' own runs and names their source. Clusterings depend on a seed that the
authors left open, so they may differ more than the other scores do.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

from inbedder_evaluation.results import Cell, select_newest
from inbedder_evaluation.tasks.task import SHIPPED

AWARENESS = ("IntentEmotion", "InstructSTSB", "NYT two-criteria clustering")
"""The paper's tests of instruction awareness (its table 1)."""
TOLERANCE_POINTS = {"clustering": 3.0}
"""How far a score of a kind may lie from the published one, in points; others by ``DEFAULT_TOLERANCE_POINTS``."""
DEFAULT_TOLERANCE_POINTS = 1.0


@cache
def read_published_models() -> list[dict[str, Any]]:
    """The models of the paper: name, measured_as (the name of the same measurement here), read, run and scores."""
    models: list[dict[str, Any]] = json.loads((SHIPPED / "paper.json").read_text(encoding="utf-8"))["models"]
    return models


def make_published_table() -> list[list[str]]:
    """The paper's models on its tests of instruction awareness.

    Returns:
        Rows of cells, the header first; scores in percent, the authors' run or table last.
    """
    rows = [["model", "read as", *AWARENESS, "source"]]
    for model in read_published_models():
        scores = [f"{model['scores'][task]:.2f}" for task in AWARENESS]
        rows.append([model["name"], model["pooling"], *scores, f"`{model['run']}`" if model["run"] else "table 1"])
    return rows


def compare_with_published(cells: Sequence[Cell]) -> list[list[str]]:
    """Compare a measurement on the paper's own sets with the published numbers.

    Args:
        cells: What was measured, under the names that ``data/paper.json`` gives.

    Returns:
        A head row and one row per published score whose model was measured: model, task, expected, found (raw vectors, the mean
        over seeds), difference, and "yes" or "no" to whether they agree; found and difference are empty where the task was not
        measured. No row at all where no model of the paper was measured.
    """
    raw_cells = [cell for cell in select_newest(cells) if cell.vectors == "raw"]
    measured = {cell.model for cell in raw_cells}
    rows = [["model", "task", "expected", "found", "difference", "agrees"]]
    for model in read_published_models():
        if model["local_name"] not in measured:
            continue
        for task, expected in model["scores"].items():
            of_task = [cell for cell in raw_cells if cell.model == model["local_name"] and cell.task.split(", ")[0] == task]
            rows.append([model["local_name"], task, f"{expected:.1f}", *_compare_score(task, expected, of_task)])
    return rows if len(rows) > 1 else []


def _compare_score(task: str, expected: float, cells: Sequence[Cell]) -> list[str]:
    if not cells:
        return ["", "", "not measured"]
    score = statistics.mean(cell.scores[cell.main_score] for cell in cells)
    tolerance = next((points for kind, points in TOLERANCE_POINTS.items() if kind in task), DEFAULT_TOLERANCE_POINTS)
    return [f"{score:.1f}", f"{score - expected:+.1f}", "yes" if abs(score - expected) <= tolerance else "no"]
