"""The commands ``inbedder groups FOLDER ...``, which list and change saved groups, named or numbered from 1 as on the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inbedder.cli.inputs import TableOptions
from inbedder.cli.parameters import with_expanded_arguments
from inbedder.cli.shared_options import BatchSize, Input, check_instruction, parse_group_count, print_message, print_result
from inbedder.errors import format_count
from inbedder.runtime.user_paths import expand_path

if TYPE_CHECKING:
    from inbedder.grouping.assign.grouping import Grouping

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    help="List, merge, rename, move or split groups.",
    epilog="Example: inbedder groups groups/ merge 1 4",
)
MIN_SPLIT_SHARE = 0.8
"""Minimum share of a group's texts in the table by which it is split; borders may have moved some since it was saved."""
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Number or name of the group.")]


@app.callback()
def _open_folder(
    ctx: typer.Context, folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder from inbedder cluster --save.")]
) -> None:
    """Take the folder before the command; list the groups without a command."""
    ctx.obj = expand_path(folder)
    if ctx.invoked_subcommand is None:
        list_groups(ctx)


@app.command("list", epilog="Example: inbedder groups groups/ list")
def list_groups(ctx: typer.Context) -> None:
    """List the groups."""
    from inbedder.grouping.assign.grouping import Grouping

    _print_groups(Grouping.load(ctx.obj))


@app.command(epilog='Example: inbedder groups groups/ merge 1 4 --name "Delivery"')
def merge(
    ctx: typer.Context,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Numbers or names of two or more groups.")],
    name: Annotated[str | None, typer.Option(help="Name of the merged group; default: that of the largest one.")] = None,
) -> None:
    """Merge groups."""
    with _edit(ctx.obj) as edit:
        edit.changed_count = edit.grouping.merge([_find_group(edit.grouping, group) for group in groups], name)


@app.command(epilog='Example: inbedder groups groups/ rename 3 "Late delivery"')
def rename(ctx: typer.Context, group: GroupName, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename a group."""
    with _edit(ctx.obj) as edit:
        edit.grouping.rename({_find_group(edit.grouping, group): name})


@app.command(epilog="Example: inbedder groups groups/ move reviews.csv --row 12 --row 15 --to 2")
@with_expanded_arguments
def move(
    ctx: typer.Context,
    source: Input,
    rows: Annotated[list[int], typer.Option("--row", min=1, help="Number of a row to move, as on the page; repeatable.")],
    to: Annotated[str, typer.Option(help="Number or name of the group.")],
    table_options: TableOptions = TableOptions(),
    batch_size: BatchSize = 32,
) -> None:
    """Move texts and similar ones to a group."""
    from inbedder.errors import InputError

    table = table_options.read(source)
    texts = dict(zip(table.rows, table.texts, strict=True))
    if lost := [row for row in rows if row not in texts]:
        raise InputError(f"The table has no text in row {lost[0]}. Its rows are numbered from 1, without the header.")
    with _edit(ctx.obj) as edit:
        target = _find_group(edit.grouping, to)
        edit.changed_count = edit.grouping.move([texts[row] for row in dict.fromkeys(rows)], target, batch_size=batch_size)


@app.command(epilog='Example: inbedder groups groups/ split 3 reviews.csv -i "Which part broke?"')
@with_expanded_arguments
def split(
    ctx: typer.Context,
    group: GroupName,
    source: Input,
    instruction: Annotated[
        str,
        typer.Option("-i", "--instruction", help="The question that splits the group.", callback=check_instruction),
    ],
    k: Annotated[str, typer.Option("-k", help="Number of new groups, or auto.")] = "auto",
    table_options: TableOptions = TableOptions(),
    batch_size: BatchSize = 32,
) -> None:
    """Split a group by another question."""
    from inbedder.errors import InputError
    from inbedder.grouping.describe.question_effect import explain_yes_or_no

    count = parse_group_count(k)
    table = table_options.read(source)
    with _edit(ctx.obj) as edit:
        position = _find_group(edit.grouping, group)
        size = edit.grouping.groups[position].size
        edit.changed_count = edit.grouping.split(position, instruction, table.texts, count, batch_size=batch_size)
        message = f"The table holds {edit.changed_count:,} of the {format_count(size, 'text')} of group {position + 1}"
        if edit.changed_count < MIN_SPLIT_SHARE * size:
            raise InputError(f"{message}, so nothing was changed. Give the table that the groups were made of.")
    if edit.changed_count < size:
        print_message(f"{message}. The new groups count only these.")
    for note in explain_yes_or_no(edit.grouping.groups[-1].answers):
        print_message(note)


@app.command(epilog="Example: inbedder groups groups/ apply changes.json")
def apply(
    ctx: typer.Context,
    changes: Annotated[Path, typer.Argument(metavar="CHANGES", help="The changes.json that the report saved.")],
) -> None:
    """Apply the changes made on the page."""
    from inbedder.grouping.stored.page_changes import apply_changes

    with _edit(ctx.obj) as edit:
        edit.changed_count = apply_changes(edit.grouping, expand_path(changes))


@dataclass
class _Edit:
    """A change of saved groups."""

    grouping: Grouping
    changed_count: int = 0
    """Number of texts that changed group."""


@contextmanager
def _edit(folder: Path) -> Iterator[_Edit]:
    """Load the groups, save them when the block ends, and print what changed and the groups."""
    from inbedder.grouping.assign.grouping import Grouping

    with Grouping.edit(folder) as grouping:
        old_sizes = {group.name: group.size for group in grouping.groups}
        edit = _Edit(grouping)
        yield edit
    print_message(f"Saved: {folder}")
    print_message(_describe_change(edit.changed_count, old_sizes, {group.name: group.size for group in grouping.groups}))
    _print_groups(grouping)


def _describe_change(count: int, old_sizes: dict[str, int], new_sizes: dict[str, int]) -> str:
    """Describe how many texts changed group, and the old and the new size of each group that did."""
    if not count:
        return "No text changed group."
    sizes = [
        f"{name} {old_sizes.get(name, 0):,} → {new_sizes.get(name, 0):,}"
        for name in old_sizes | new_sizes
        if old_sizes.get(name) != new_sizes.get(name)
    ]
    return f"{format_count(count, 'text')} changed group: {'; '.join(sizes)}."


def _find_group(grouping: Grouping, group: str) -> int:
    """Find the position of a group by its number from 1, or by its name in any case."""
    if group.isdecimal() and 1 <= int(group) <= len(grouping.groups):
        return int(group) - 1
    folded_names = [name.casefold() for name in grouping.names]
    if group.casefold() in folded_names:
        return folded_names.index(group.casefold())
    message = f"there are {len(grouping.groups)} groups, and none has the number or name {group!r}."
    raise typer.BadParameter(message, param_hint="GROUP")


def _print_groups(grouping: Grouping) -> None:
    from inbedder.grouping.describe.loose_groups import LOOSE_MARK, LOOSE_NOTE

    print_message(grouping.question)
    print_result("  group   texts  name")
    for number, group in enumerate(grouping.groups, 1):
        print_result(f"{number:7d} {group.size:7d}  {group.name}" + f" {LOOSE_MARK}" * group.loose)
    if any(group.loose for group in grouping.groups):
        print_message(LOOSE_NOTE)
