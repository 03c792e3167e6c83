"""Export of results to mteb's result files, which mteb's ResultCache loads."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from inbedder_evaluation.results import Cell, select_newest
from inbedder_evaluation.tasks.standard import StandardTask
from inbedder_evaluation.tasks.task import Task

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask


def save_as_mteb(cells: Sequence[Cell], tasks: Sequence[Task], folder: Path) -> int:
    """Write the raw cells of standard tasks as mteb results.

    Args:
        cells: The measured cells.
        tasks: The tasks they were measured on.
        folder: The folder to write to; ``mteb.ResultCache(folder)`` reads it.

    Returns:
        Number of files written.
    """
    standard = {task.info.name: task.task for task in tasks if isinstance(task, StandardTask)}
    return save_cells_as_mteb(cells, standard, folder) if standard else 0


def save_cells_as_mteb(cells: Sequence[Cell], tasks: Mapping[str, AbsTask], folder: Path) -> int:
    """Write the raw cells of mteb's tasks as mteb results: one file per model and task, scores averaged over seeds.

    Args:
        cells: The measured cells.
        tasks: mteb's tasks by the name that the cells have; other cells are left out.
        folder: The folder to write to; ``mteb.ResultCache(folder)`` reads it.

    Returns:
        Number of files written.
    """
    from mteb.cache import ResultCache
    from mteb.results import TaskResult

    from inbedder_evaluation.mteb_adapters import describe

    cache, num_files, cells = ResultCache(folder), 0, select_newest(cells)
    for model, name in dict.fromkeys((cell.model, cell.task) for cell in cells if cell.task in tasks):
        task_cells = [cell for cell in cells if (cell.model, cell.task, cell.vectors) == (model, name, "raw")]
        scores = {key: mean(cell.scores[key] for cell in task_cells) / 100 for key in task_cells[0].scores}
        task = tasks[name]
        result = TaskResult.from_task_results(
            task,
            {task.eval_splits[0]: {task.hf_subsets[0]: {**scores, "main_score": scores[task_cells[0].main_score]}}},
            evaluation_time=sum(cell.seconds for cell in task_cells),
            date=datetime.datetime.now(tz=datetime.timezone.utc),
        )
        label = re.sub(r"[^A-Za-z0-9.-]+", "-", model).strip("-")
        cache.save_to_cache(result, describe(f"inbedder/{label}", task_cells[0].model_revision))
        num_files += 1
    return num_files
