"""Published scores of the InBedder paper's models, and their comparison with our measurements.

``data/paper.json`` holds the scores of the authors' own runs and names their source. Clustering depends on a seed that the
authors do not state, so its scores may differ more than the others.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

from inbedder_evaluation.results import Cell, select_newest
from inbedder_evaluation.tasks.task import SHIPPED

TOLERANCE_POINTS = {"clustering": 3.0}
"""Largest accepted difference from the published score by kind, in points; for other kinds, ``DEFAULT_TOLERANCE_POINTS``."""
DEFAULT_TOLERANCE_POINTS = 1.0


@cache
def read_published_models() -> list[dict[str, Any]]:
    """Read the paper's models: name, local_name (the name of the same measurement here), pooling, run and scores.

    A local name lacks the model's folder or owner, so that it also names a replica that a recipe trained, and the dtype.
    """
    models: list[dict[str, Any]] = json.loads((SHIPPED / "paper.json").read_text(encoding="utf-8"))["models"]
    return models


def compare_with_published(cells: Sequence[Cell]) -> list[list[str]]:
    """Compare a measurement on the paper's own sets with the published numbers.

    Args:
        cells: The measured cells, under the names in ``data/paper.json``.

    Returns:
        A header row and one row per published score of a measured model: model, task, expected, found (raw vectors, the mean
        over seeds), difference, and "yes" or "no" for whether they agree. Found and difference are empty when the task was not
        measured. The list is empty when no model of the paper was measured.
    """
    raw_cells = [cell for cell in select_newest(cells) if cell.vectors == "raw"]
    measured = list(dict.fromkeys(cell.model for cell in raw_cells))
    rows = [["model", "task", "expected", "found", "difference", "agrees"]]
    for model in read_published_models():
        for name in (name for name in measured if f"/{_drop_dtype(name)}".endswith(f"/{model['local_name']}")):
            for task, expected in model["scores"].items():
                task_cells = [cell for cell in raw_cells if cell.model == name and cell.task.split(", ")[0] == task]
                rows.append([name, task, f"{expected:.1f}", *_compare_score(task, expected, task_cells)])
    return rows if len(rows) > 1 else []


def _drop_dtype(name: str) -> str:
    """Drop the dtype from a name of ``make_embedders``."""
    return re.sub(r", dtype='\w+'", "", name)


def _compare_score(task: str, expected: float, cells: Sequence[Cell]) -> list[str]:
    if not cells:
        return ["", "", "not measured"]
    score = statistics.mean(cell.scores[cell.main_score] for cell in cells)
    tolerance = next((points for kind, points in TOLERANCE_POINTS.items() if kind in task), DEFAULT_TOLERANCE_POINTS)
    return [f"{score:.1f}", f"{score - expected:+.1f}", "yes" if abs(score - expected) <= tolerance else "no"]
