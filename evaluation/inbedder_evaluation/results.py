"""Results on disk: one cell per model, task, kind of vectors and seed, in one json file that is replaced atomically.

Values that many cells share (command, machine, versions, first prompts) are stored once in ``shared``; cells refer to them by
number. Each cell is one line.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inbedder.errors import InputError
from inbedder.io.files import atomic_write

VERSION = 2
SHARED = ("metadata", "first_prompt", "model_revision", "data_revision")
"""Fields of a cell that are stored in ``shared``."""


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    model: str
    """Name of the embedder, variant included."""
    model_revision: str
    """Identifies its weights and settings."""
    task: str
    """Name of the task."""
    data_revision: str
    """Commit or hash of the data."""
    vectors: str
    """"raw", or "centred" (the mean over the task's texts subtracted)."""
    seed: int
    """Seed of k-means; 0 for tasks without a seed."""
    main_score: str
    """Name of the score that tables show."""
    scores: dict[str, float]
    """All scores."""
    first_prompt: str
    """The prompt of the task's first text."""
    seconds: float
    """Wall-clock time in seconds."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Versions, machine, command, licence."""
    interval: Sequence[float] | None = None
    """Ends of the main score's 95% interval, for tasks without a seed that report items (``item_results``)."""

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """The fields that identify a measurement."""
        return (self.model, self.model_revision, self.task, self.data_revision, self.vectors, self.seed)


def load_cells(path: Path) -> list[Cell]:
    """Read the finished cells of a results file.

    Args:
        path: The file.

    Returns:
        The cells; an empty list when the file does not exist.

    Raises:
        InputError: If the file is not a results file.
    """
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
        shared = content["shared"]
        return [Cell(**cell | {name: shared[name][cell[name]] for name in shared}) for cell in content["cells"]]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is not a results file of inbedder evaluate ({error}). Choose another -o.") from error


def save_cells(cells: Iterable[Cell], path: Path) -> None:
    """Write all cells atomically.

    Args:
        cells: The cells.
        path: The file.
    """
    indices: dict[str, dict[str, int]] = {name: {} for name in SHARED}
    lines = []
    for cell in cells:
        values = asdict(cell)
        for name, value_indices in indices.items():
            values[name] = value_indices.setdefault(json.dumps(values[name]), len(value_indices))
        lines.append(json.dumps(values))
    shared = [f'  "{name}": [\n   ' + ",\n   ".join(value_indices) + "\n  ]" for name, value_indices in indices.items()]
    text = f'{{\n "version": {VERSION},\n "shared": {{\n' + ",\n".join(shared) + "\n },\n"
    text += ' "cells": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def select_newest(cells: Sequence[Cell]) -> list[Cell]:
    """Select the cells of the latest weights and data of each model and task; a file may also hold older ones.

    Args:
        cells: The cells of a file, in order.

    Returns:
        The cells to show.
    """
    last = {(cell.model, cell.task): (cell.model_revision, cell.data_revision) for cell in cells}
    return [cell for cell in cells if last[cell.model, cell.task] == (cell.model_revision, cell.data_revision)]


def make_table(cells: Sequence[Cell], vectors: str = "raw", score: str | None = None) -> list[list[str]]:
    """Format scores as rows of text: mean ± standard deviation over seeds, or a score with its 95% interval in brackets.

    Args:
        cells: The cells.
        vectors: Kind of vectors, "raw" or "centred".
        score: Name of the score; cells without it are skipped. None shows each cell's main score.

    Returns:
        A header row (model and tasks) and one row per model, in order of appearance.
    """
    cells_shown = [cell for cell in select_newest(cells) if cell.vectors == vectors and (score is None or score in cell.scores)]
    tasks = list(dict.fromkeys(cell.task for cell in cells_shown))
    models = list(dict.fromkeys(cell.model for cell in cells_shown))
    rows = [["model", *tasks]]
    for model in models:
        rows.append(
            [model, *(_format_scores([c for c in cells_shown if (c.model, c.task) == (model, task)], score) for task in tasks)]
        )
    return rows


def _format_scores(cells: Sequence[Cell], score: str | None) -> str:
    values = [cell.scores[score or cell.main_score] for cell in cells]
    if not values:
        return ""
    if len(values) == 1:
        ends = cells[0].interval if score in (None, cells[0].main_score) else None
        return f"{values[0]:.1f}" + (f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else "")
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def format_markdown(rows: Sequence[Sequence[str]], alignment: str = "--:") -> str:
    """Format a table as Markdown.

    Args:
        rows: A header row and body rows, such as the result of ``make_table``.
        alignment: Markdown's mark for all columns but the first, which is aligned left: "--:" is right, "---" left.

    Returns:
        The table, without a line break at its end.
    """
    head, *body = rows
    lines = [head, ["---", *(alignment for _ in head[1:])], *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_aligned(rows: Sequence[Sequence[str]]) -> str:
    """Format a table for a terminal.

    Args:
        rows: A header row and body rows, all of the same length.

    Returns:
        One line per row, with aligned columns.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
