"""``inbedder assign``, and where ``inbedder cluster --save`` keeps groupings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import read_texts
from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import (
    BatchSize,
    Delimiter,
    GuardCells,
    Input,
    SkipBad,
    TextColumn,
    check_output,
    say,
)

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.assignment import Assignment
    from inbedder.grouping.result import ClusterResult
    from inbedder.grouping.saving import Grouping


@model_options
def assign(
    folder: Annotated[Path, typer.Argument(metavar="GROUPS", help="A folder that inbedder cluster --save wrote.")],
    source: Input,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Your table with each row's group (.csv .tsv .jsonl .json .parquet .xlsx)."),
    ] = Path("assigned.csv"),
    update: Annotated[
        bool,
        typer.Option("--update", help="Add groups where texts that fit none form one of their own, and keep them in GROUPS."),
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Where the model lies now, if no longer where it was; another model is refused.")
    ] = None,
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    guard_cells: GuardCells = True,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Put new texts into kept groups, and say which fit none of them."""
    check_output(output, (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx"), source)
    from inbedder.grouping.saving import Grouping

    folders = kept_folders(folder)
    opened: dict[str, InBedder] = {}
    groupings: list[Grouping] = []
    for place in folders:
        grouping = Grouping.load(place, **model_options)
        spec_key = grouping.provenance.spec.key()
        known = opened.get(spec_key)
        groupings.append(grouping if known is None and model is None else Grouping.load(place, known or model, **model_options))
        opened[spec_key] = groupings[-1].model
    table = read_texts(source, text_column, skip_bad, delimiter)
    found = []
    for place, grouping in zip(folders, groupings, strict=True):
        before = len(grouping.groups)
        found.append((grouping.update if update else grouping.assign)(table.texts, batch_size=batch_size))
        _tell(grouping, found[-1], before)
        if len(grouping.groups) > before:
            grouping.save(place)
    from inbedder.io.outputs import write_records

    write_records(table.with_columns(_columns(groupings, found)), output, guard_cells=guard_cells)
    if table.unparsed:
        say(f"Not in the written table, since they could not be read: {table.unparsed} rows.")
    say(f"Written: {output}")


def kept_folders(folder: Path) -> list[Path]:
    """Folders of the groupings of one run: the folder itself, or its folders 1, 2, ... where there were several questions."""
    several = [path for path in folder.glob("*") if path.name.isdecimal()] if folder.is_dir() else []
    return sorted(several, key=lambda path: int(path.name)) or [folder]


def check_kept(folder: Path | None, count: int) -> None:
    """Refuse a folder for groupings before the work that could not be kept after it."""
    if folder is None:
        return
    from inbedder.errors import InputError
    from inbedder.grouping.saved_files import check_save_folder

    try:
        for place in _places(folder, count):
            check_save_folder(place)
        there = kept_folders(folder) if folder.is_dir() and any(folder.iterdir()) else []
        if there and len(there) != count:
            raise InputError(f"{folder} holds something else than the groups of {count} questions. Name a new folder.")
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--save") from error


def save_groupings(results: Sequence[ClusterResult], folder: Path | None) -> None:
    """Keep the grouping of one question in the folder, those of several in its folders 1, 2, ..., all of them or none."""
    if folder is None:
        return
    from inbedder.grouping.saving import Grouping

    groupings = [Grouping.of(result) for result in results]
    for grouping, place in zip(groupings, _places(folder, len(groupings)), strict=True):
        grouping.save(place)
    say(f"Kept: {folder}; put new texts into these groups with: inbedder assign {folder} NEW.csv")


def _places(folder: Path, count: int) -> list[Path]:
    return [folder] if count == 1 else [folder / str(number) for number in range(1, count + 1)]


def _tell(grouping: Grouping, found: Assignment, before: int) -> None:
    say(f"{grouping.question}")
    counts = Counter(found.labels[found.fits].tolist())
    for number, name in enumerate(grouping.names):
        say(f"  {counts[number]:6d}  {name}{' (new)' if number >= before else ''}")
    say(f"  {int((~found.fits).sum()):6d}  fit no group")


def _columns(groupings: Sequence[Grouping], found: Sequence[Assignment]) -> dict[str, list[Any]]:
    """What was found, a list per column; with the question behind each name where there are several."""
    columns: dict[str, list[Any]] = {}
    for grouping, assignment in zip(groupings, found, strict=True):
        suffix = f": {grouping.question}" if len(found) > 1 else ""
        while f"group{suffix}" in columns:  # the same question once more
            suffix += " (again)"
        for row in assignment.rows():
            for name, value in row.items():
                columns.setdefault(f"{name}{suffix}", []).append(value)
    return columns
