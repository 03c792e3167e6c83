"""Paired bootstrap: the difference of two models on the same items, with a 95% interval and a p-value.

Each resample takes the same units for both models, so items that are easy or hard for both cancel out. The interval holds the
middle 95% of the resampled differences; p is twice the share of resamples on the other side of zero (at least 2 in 1,001).
Clustering scores are averaged over seeds; texts are resampled, and their groups stay fixed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.io.files import atomic_write
from inbedder_evaluation.item_results import RESAMPLES, load_outcomes, resample_units
from inbedder_evaluation.results import Cell, select_newest


@dataclass(frozen=True)
class Comparison:
    """The comparison of two models on one task."""

    task: str
    """Name of the task."""
    vectors: str
    """"raw" or "centred"."""
    first: float
    """Main score of the first model, the mean over seeds."""
    second: float
    """Main score of the second model, the mean over seeds."""
    difference: float
    """First minus second."""
    interval: tuple[float, float] | None = None
    """The 95% interval of the difference; None when the items of the task are not saved."""
    p: float | None = None
    """Two-sided p-value of the difference."""


def find_model(name: str, models: Sequence[str]) -> str:
    """Find the measured model that a name given to ``--compare`` refers to.

    Args:
        name: A model name as tables show it, or a value of --model or --baseline.
        models: Names of all measured models, those with an instruction first.

    Returns:
        The model of exactly that name, or else the first whose name begins with it.

    Raises:
        InputError: If no measured model matches.
    """
    matches = [model for model in models if model == name] or [model for model in models if model.startswith(f"{name}, ")]
    if matches:
        return matches[0]
    raise InputError(f"--compare names {name!r}, which was not measured. Measured models: {'; '.join(models)}.")


def compare(cells: Sequence[Cell], first: str, second: str, items: Path) -> list[Comparison]:
    """Compare two models on each task and kind of vectors that both were measured on.

    Args:
        cells: The measured cells.
        first: Name of the first model.
        second: Name of the second model.
        items: Folder of the saved items.

    Returns:
        The comparisons, in the order of the cells.

    Raises:
        InputError: If both names are the same, or no task was measured with both models.
    """
    if first == second:
        raise InputError(f"--compare names {first!r} twice; name two models.")
    first_cells, second_cells = (
        {_place(cell): cell for cell in select_newest(cells) if cell.model == name} for name in (first, second)
    )
    pairs = [(first_cells[place], second_cells[place]) for place in first_cells if place in second_cells]
    if not pairs:
        raise InputError(f"No task was measured with both {first!r} and {second!r}.")
    tasks = dict.fromkeys((cell.task, cell.vectors) for cell, _ in pairs)
    return [_compare_task([pair for pair in pairs if (pair[0].task, pair[0].vectors) == task], items) for task in tasks]


def _place(cell: Cell) -> tuple[str, str, str, int]:
    return cell.task, cell.data_revision, cell.vectors, cell.seed


def _compare_task(pairs: Sequence[tuple[Cell, Cell]], items: Path) -> Comparison:
    """Compare two models on one task; the pairs differ only in their seed."""
    first, second = (mean(pair[side].scores[pair[side].main_score] for pair in pairs) for side in (0, 1))
    seed_pairs = [(one, two) for pair in pairs for one, two in [[load_outcomes(items, cell.key) for cell in pair]] if one and two]
    if any(list(one.units) != list(two.units) for one, two in seed_pairs):
        raise InputError(f"{pairs[0][0].task}: the saved items of the two models differ. Remove {items} and measure again.")

    def compute_difference(rows: NDArray[np.int64]) -> float:
        return mean(one.main_score(rows) - two.main_score(rows) for one, two in seed_pairs)

    bootstrap = (
        resample_units(seed_pairs[0][0].units, compute_difference)
        if len(seed_pairs) == len(pairs) and seed_pairs[0][0].statistic
        else None
    )
    task_and_vectors = (pairs[0][0].task, pairs[0][0].vectors)
    compared = Comparison(*task_and_vectors, round(first, 2), round(second, 2), round(first - second, 2))
    if bootstrap is None:
        return compared
    beyond = min(int((bootstrap[1] <= 0).sum()), int((bootstrap[1] >= 0).sum()))
    low, high = (round(end, 2) for end in bootstrap[0])
    return replace(compared, interval=(low, high), p=round(min(1.0, 2 * (1 + beyond) / (1 + RESAMPLES)), 4))


def make_comparison_table(comparisons: Sequence[Comparison], first: str, second: str) -> list[list[str]]:
    """Format comparisons as rows of text.

    Args:
        comparisons: The comparisons.
        first: Name of the first model.
        second: Name of the second.

    Returns:
        A header row and one row per comparison.
    """
    rows = [["task", "vectors", first, second, "difference", "95% interval", "p"]]
    for row in comparisons:
        ends = "items not saved" if row.interval is None else f"{row.interval[0]:+.1f} to {row.interval[1]:+.1f}"
        p = "" if row.p is None else f"{row.p:.3f}"
        rows.append([row.task, row.vectors, f"{row.first:.1f}", f"{row.second:.1f}", f"{row.difference:+.1f}", ends, p])
    return rows


def save_comparison(comparisons: Sequence[Comparison], first: str, second: str, command: str, path: Path) -> None:
    """Write comparisons to a file next to the results.

    Args:
        comparisons: The comparisons.
        first: Name of the first model.
        second: Name of the second.
        command: The command that computed them.
        path: A .json file.
    """
    content = {"command": command, "first": first, "second": second, "resamples": RESAMPLES}
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content | {"tasks": [asdict(row) for row in comparisons]}, indent=1), encoding="utf-8")
