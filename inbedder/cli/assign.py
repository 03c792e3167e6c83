"""The command ``inbedder assign``, and the folders of saved groupings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.deferred_errors import DeferredErrors
from inbedder.cli.inputs import TableOptions
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import TABLE_TYPES, BatchSize, GuardCells, Input, check_output, print_message
from inbedder.errors import format_count

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.assign.assignment import Assignment
    from inbedder.grouping.assign.grouping import Grouping
    from inbedder.grouping.clustering import ClusterResult

Save = Annotated[Path | None, typer.Option(help="Folder to save the groups in, for inbedder assign.")]


@with_model_options
def assign(
    folder: Annotated[Path, typer.Argument(metavar="GROUPS", help="Folder from inbedder cluster --save.")],
    source: Input,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Your table with each row's group (.csv .tsv .jsonl .json .parquet .xlsx).")
    ] = Path("assigned.csv"),
    update: Annotated[
        bool, typer.Option("--update", help="Add groups of similar texts that fit none, and save them in GROUPS.")
    ] = False,
    table_options: TableOptions = TableOptions(),
    model: Annotated[str | None, typer.Option(help="New name or folder of the model, if it was moved.")] = None,
    guard_cells: GuardCells = True,
    batch_size: BatchSize = 32,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Assign new texts to saved groups."""
    check_output(output, TABLE_TYPES, source)
    from inbedder.grouping.assign.grouping import Grouping

    folders = list_grouping_folders(folder)
    models: dict[str, InBedder] = {}
    groupings: list[Grouping] = []
    for path in folders:
        grouping = Grouping.load(path, **model_options)
        spec_key = grouping.provenance.spec.key()
        loaded_model = models.get(spec_key)
        groupings.append(
            grouping if loaded_model is None and model is None else Grouping.load(path, loaded_model or model, **model_options)
        )
        models[spec_key] = groupings[-1].model
    table = table_options.read(source)
    assignments, failures = [], DeferredErrors()
    for path, grouping in zip(folders, groupings, strict=True):
        old_count = len(grouping.groups)
        assignments.append((grouping.update if update else grouping.assign)(table.texts, batch_size=batch_size))
        _print_assignment(grouping, assignments[-1], old_count)
        if len(grouping.groups) > old_count:
            with failures.collect(path):
                grouping.save(path)
    from inbedder.io.outputs import write_records

    write_records(table.with_columns(_make_columns(groupings, assignments)), output, guard_cells=guard_cells)
    if table.unparsed:
        print_message(f"The written table leaves out {format_count(table.unparsed, 'unreadable row')}.")
    print_message(f"Written: {output}")
    failures.raise_all()


def list_grouping_folders(folder: Path) -> list[Path]:
    """List the folders of the groupings of one run: the folder itself, or its subfolders 1, 2, ... for several questions."""
    subfolders = [path for path in folder.glob("*") if path.name.isdecimal()] if folder.is_dir() else []
    return sorted(subfolders, key=lambda path: int(path.name)) or [folder]


def check_save_folders(folder: Path | None, count: int) -> None:
    """Check, before the model runs, that groupings can be saved in a folder."""
    if folder is None:
        return
    from inbedder.errors import InputError, format_value
    from inbedder.grouping.stored.saved_files import check_save_folder, is_leftover

    targets = _list_target_folders(folder, count)
    try:
        for path in targets:
            check_save_folder(path)
        present = list_grouping_folders(folder) if count == 1 else folder.iterdir() if folder.is_dir() else ()
        if any(path not in targets and not is_leftover(path) for path in present):
            raise InputError(f"{format_value(str(folder))} does not hold the groups of {count} questions. Choose a new folder.")
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--save") from error


def save_groupings(results: Sequence[ClusterResult], folder: Path) -> None:
    """Save the grouping of one question in a folder, or those of several questions in its subfolders 1, 2, ..."""
    from inbedder.grouping.assign.grouping import Grouping

    groupings = [Grouping.of(result) for result in results]
    for grouping, path in zip(groupings, _list_target_folders(folder, len(groupings)), strict=True):
        grouping.save(path)
    print_message(f"Saved: {folder}. Assign new texts: inbedder assign {folder} NEW.csv")


def _list_target_folders(folder: Path, count: int) -> list[Path]:
    return [folder] if count == 1 else [folder / str(number) for number in range(1, count + 1)]


def _print_assignment(grouping: Grouping, assignment: Assignment, old_count: int) -> None:
    """Print the number of assigned texts per group."""
    from inbedder.grouping.grouped_texts import LEFT_OUT

    print_message(f"{grouping.question}")
    counts = Counter(assignment.labels[assignment.fits].tolist())
    for number, name in enumerate(grouping.names):
        print_message(f"  {counts[number]:6d}  {name}{' (new)' if number >= old_count else ''}")
    print_message(f"  {int((~assignment.fits).sum()):6d}  {LEFT_OUT}")


def _make_columns(groupings: Sequence[Grouping], assignments: Sequence[Assignment]) -> dict[str, list[Any]]:
    """Make the table columns of assignments; with several groupings the question follows each name."""
    columns: dict[str, list[Any]] = {}
    for grouping, assignment in zip(groupings, assignments, strict=True):
        suffix = f": {grouping.question}" if len(assignments) > 1 else ""
        while f"group{suffix}" in columns:  # the same question again
            suffix += " (again)"
        for row in assignment.rows():
            for name, value in row.items():
                columns.setdefault(f"{name}{suffix}", []).append(value)
    return columns
