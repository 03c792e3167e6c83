"""Tables of scores for choosing and reporting models: a row per set and criterion, with and without the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from inbedder.errors import InputError
from inbedder.runtime.user_paths import expand_path
from inbedder_evaluation.embedders import Embedder
from inbedder_evaluation.results import Cell
from inbedder_evaluation.runner import run
from inbedder_evaluation.tasks.question_wordings import QuestionWordings, build_row
from inbedder_evaluation.tasks.sets import find_set, read_tables

DEFAULT_ROWS = 1000
"""Maximum number of rows of each set."""
DEFAULT_SEEDS = 3
"""Number of seeds of k-means."""
UNASKED = ", no instruction"
"""End of the name of an embedder that reads no question."""
Score = tuple[float, float]


def build_table(table: str, folder: Path | None, limit: int | None, names: Sequence[str] = ()) -> list[QuestionWordings]:
    """Build the tasks of a table of ``sets.yaml``.

    Args:
        table: Name of the table, "dev" or "test".
        folder: Folder of the known sets.
        limit: Maximum number of rows of each set, sampled with seed 0.
        names: Build only tasks of sets whose name contains one of these; empty builds all.

    Returns:
        The tasks.

    Raises:
        InputError: If there is no such table or folder, the folder lacks a set, or the table has no set of such a name.
    """
    tables = read_tables()
    if table not in tables:
        raise InputError(f"Unknown table {table!r}. Known: {', '.join(tables)}.")
    folder = None if folder is None else expand_path(folder)
    if folder is None or not folder.is_dir():
        raise InputError("A table of scores needs the folder of the known sets: give it as --data.")
    rows = [row for row in tables[table] if not names or any(name.lower() in row.set.lower() for name in names)]
    if not rows:
        raise InputError(
            f"The {table} table has no {' or '.join(names)}. Its sets are: {', '.join(row.set for row in tables[table])}."
        )
    files = [known_set.file for known_set in (find_set(row.kind, row.set) for row in rows) if not known_set.shipped]
    if missing := [file for file in files if not (folder / str(file)).is_file()]:
        raise InputError(
            f"{folder} has no {', '.join(map(str, missing))}. scripts/data/get_data.py lists where the sets come from."
        )
    return [task for row in rows for task in build_row(row, folder, limit)]


def measure_table(
    embedders: Sequence[Embedder],
    tasks: Sequence[QuestionWordings],
    path: Path,
    seeds: Sequence[int],
    report: Callable[[Cell], None],
) -> list[Cell]:
    """Measure embedders on the tasks of a table, on raw vectors; tasks without a question only by those that read none.

    Args:
        embedders: The embedders.
        tasks: The tasks of the table.
        path: Results file; its finished cells are kept.
        seeds: Seeds of k-means.
        report: Called with each cell.

    Returns:
        The cells.
    """
    with_question = [task for task in tasks if task.has_question]
    without_question = [task for task in tasks if not task.has_question]
    uninstructed = [embedder for embedder in embedders if not embedder.instructed]
    cells = run(embedders, with_question, path, seeds, report, kinds=("raw",))
    return cells + run(uninstructed, without_question, path, seeds, report, kinds=("raw",))


def make_score_table(cells: Sequence[Cell], tasks: Sequence[QuestionWordings]) -> list[list[str]]:
    """Format the scores of a table.

    Args:
        cells: The result of ``measure_table``.
        tasks: The tasks of the table.

    Returns:
        A header row, a row per set and criterion, and a last row with the plain mean of each column. A model has the mean over
        the wordings and the worst wording; its score without a question is both where the set has no question.
    """
    models = list(dict.fromkeys(cell.model for cell in cells))
    rows = [(task, criterion) for task in tasks for criterion in task.criteria]
    columns: dict[str, list[float | None]] = {}
    for model in models:
        scores = [_compute_score(cells, model, task, criterion) for task, criterion in rows]
        if model.endswith(UNASKED):
            columns[model.removesuffix(UNASKED) + " unasked"] = [score and score[0] for score in scores]
        else:
            columns[f"{model} mean"] = [score and score[0] for score in scores]
            columns[f"{model} worst"] = [score and score[1] for score in scores]
    table = [["set and criterion", *columns]]
    for number, (task, criterion) in enumerate(rows):
        name = task.name if task.has_question else f"{task.name}, no question"
        table.append([f"{name}: {criterion}", *(_format_score(column[number]) for column in columns.values())])
    scored_columns = [[score for score in column if score is not None] for column in columns.values()]
    means = [f"{mean(column):.1f}" if len(column) == len(rows) else "" for column in scored_columns]
    return [*table, [f"plain mean of the {len(rows)} rows", *means]]


def _compute_score(cells: Sequence[Cell], model: str, task: QuestionWordings, criterion: str) -> Score | None:
    """Compute the score of a model on a task, or of the model without a question where the task has none."""
    if not task.has_question and not model.endswith(UNASKED):
        unasked = [
            cell.model for cell in cells if cell.model.endswith(UNASKED) and model.startswith(cell.model.removesuffix(UNASKED))
        ]
        model = max(unasked, key=len, default=model)
    model_cells = [
        cell for cell in cells if (cell.model, cell.task, cell.data_revision) == (model, task.info.name, task.info.revision)
    ]
    return summarize_wordings(model_cells, criterion) if model_cells else None


def summarize_wordings(cells: Sequence[Cell], criterion: str) -> Score:
    """Compute the mean and the minimum of a score over the wordings of a question, each wording by its mean over the seeds.

    Args:
        cells: Cells of one model and one task of a table, one for each seed.
        criterion: Name of the score without the number of its wording.

    Returns:
        Mean and minimum.
    """
    names = [name for name in cells[0].scores if name.rpartition(" ")[0] == criterion]
    by_wording = [mean(cell.scores[name] for cell in cells) for name in names]
    return mean(by_wording), min(by_wording)


def _format_score(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"
