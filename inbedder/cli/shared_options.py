"""The options that commands share. Nothing heavy is imported here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

INPUT, MODEL, ANSWERS, SPEED, JOBS = "Input", "Model", "Answers", "Speed", "Jobs"
"""Groups of options in --help; what stands in none comes first."""

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A .csv, .tsv, .jsonl, .json, .txt (also .gz), .parquet or .xlsx file, or - for standard input.",
    ),
]
Instruction = Annotated[
    str | None, typer.Option("-i", "--instruction", help="The question to ask of each text, or a named one such as @topic.")
]
Instructions = Annotated[
    list[str], typer.Option("-i", "--instruction", help="The question to group by; repeat to compare several groupings.")
]
TextColumn = Annotated[
    list[str] | None,
    typer.Option(
        help="Column with the texts; by default the one called text, or the only one that contains text. Repeat to join several."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="Field delimiter of a .csv, such as ';' or tab; by default found among commas, semicolons, tabs and bars.",
        callback=lambda value: _one_character(value),
        rich_help_panel=INPUT,
    ),
]
GuardCells = Annotated[
    bool,
    typer.Option(
        "--guard-cells/--no-guard-cells",
        help="In .csv and .tsv, put an apostrophe before texts that begin with = + - @, a tab or a carriage return, which "
        "spreadsheets would run as formulas; numbers stay as they are.",
    ),
]
Model = Annotated[str, typer.Option(help="mini (bundled), small (inbedder models install small), a folder or a hub id.")]
VectorsOutput = Annotated[
    Path,
    typer.Option("-o", "--output", help="A .npy or .parquet file; with --engine ray a folder, which a second run completes."),
]

SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out unreadable rows instead of stopping at the first.", rich_help_panel=INPUT)
]
IdColumn = Annotated[
    str | None,
    typer.Option(help="With --engine ray: column of unique ids; by default the row number.", rich_help_panel=JOBS),
]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="Answers per text.", rich_help_panel=ANSWERS)]
Temperature = Annotated[
    float,
    typer.Option(min=0.0, help="Temperature of sampled answers; 0 is greedy.", rich_help_panel=ANSWERS),
]
TopP = Annotated[float, typer.Option(help="Nucleus (top-p) of sampled answers.", rich_help_panel=ANSWERS)]
Seed = Annotated[int, typer.Option(help="Seed of sampled answers.", rich_help_panel=ANSWERS)]

BatchSize = Annotated[int, typer.Option(min=1, help="Batch size.", rich_help_panel=SPEED)]
Guided = Annotated[
    int | None,
    typer.Option(
        min=50, help="Faster: ask the question of N sampled texts and estimate the rest.", metavar="N", rich_help_panel=SPEED
    ),
]

Engine = Annotated[
    str,
    typer.Option(help="local (this process), or ray: several workers or machines; a killed job goes on.", rich_help_panel=JOBS),
]
Workers = Annotated[int, typer.Option(min=1, help="With --engine ray: processes that hold the model.", rich_help_panel=JOBS)]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: threads per worker; by default cores divided by workers.", rich_help_panel=JOBS),
]
Address = Annotated[
    str | None,
    typer.Option(help="With --engine ray: address of a running cluster; by default this machine.", rich_help_panel=JOBS),
]


def _one_character(value: str | None) -> str | None:
    """A delimiter, also by a name that is easier to type."""
    delimiter = {"tab": "\t", r"\t": "\t"}.get(value or "", value)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise typer.BadParameter("give one character, such as ';', or tab.", param_hint="--delimiter")
    return delimiter


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Characters that a terminal would obey, and how they are written."""


def say(message: str) -> None:
    """Tell the user, beside the output."""
    typer.echo(message.translate(CONTROLS), err=True)


def say_columns(columns: Iterable[str]) -> None:
    """Say where the texts are found that nobody said where to find."""
    from inbedder.errors import format_names

    say(f"The texts are in column {format_names(list(dict.fromkeys(columns)))}.")


def group_count(k: str) -> int | str:
    """Number of groups that is asked for, or "auto".

    Args:
        k: What the user gave.

    Returns:
        The number, or "auto".

    Raises:
        typer.BadParameter: When it is neither.
    """
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    return k if k == "auto" else int(k)


def group_counts(k: Sequence[str], groupings: int) -> list[int | str]:
    """Spread the values of ``-k`` over the groupings.

    Args:
        k: One value for all groupings, or one for each.
        groupings: Number of groupings.

    Returns:
        A number or "auto" for each grouping.

    Raises:
        typer.BadParameter: When a value is neither a number nor "auto", or there are neither one nor ``groupings`` of them.
    """
    counts = [group_count(value) for value in k]
    if len(counts) not in (1, groupings):
        raise typer.BadParameter(f"give it once, or once for each of the {groupings} groupings.", param_hint="-k")
    return counts * groupings if len(counts) == 1 else counts


def check_output(path: Path, allowed: tuple[str, ...], source: str | None = None) -> None:
    """Refuse an output before the work that could not be written after it, or that would replace the input.

    Args:
        path: The output.
        allowed: How it may end.
        source: The input; None where it cannot be lost.

    Raises:
        BadParameter: When it is refused.
    """
    from inbedder.errors import format_value

    if path.suffix.lower() not in allowed:
        raise typer.BadParameter(f"{format_value(str(path))}: give a file that ends in {', '.join(allowed)}.", param_hint="-o")
    _check_writable(path, [] if source is None else [source])


def check_outputs(paths: Sequence[Path], allowed: tuple[str, ...], source: str) -> None:
    """As ``check_output``, of several, which have to be different files.

    Args:
        paths: The outputs.
        allowed: How each may end.
        source: The input.

    Raises:
        BadParameter: When one is refused.
    """
    for path in paths:
        check_output(path, allowed, source)
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise typer.BadParameter("two outputs are the same file; give each its own.", param_hint="-o")


def check_folder(path: Path, source: str) -> None:
    """As ``check_output``, of the folder of a job.

    Args:
        path: The folder, which need not be there.
        source: The input.

    Raises:
        BadParameter: When it is refused.
    """
    from inbedder.errors import format_value
    from inbedder.io.files import is_same_file

    if path.suffix or path.is_file():
        message = f"{format_value(str(path))}: with --engine ray give a folder, such as vectors/."
        raise typer.BadParameter(message, param_hint="-o")
    if is_same_file(source, path):
        raise typer.BadParameter(f"{format_value(str(path))} is the input itself. Give a new folder.", param_hint="-o")
    _check_writable(path / "part.parquet" if path.is_dir() else path, [])


def _check_writable(path: Path, sources: Sequence[str]) -> None:
    from inbedder.errors import InputError, format_value
    from inbedder.io.outputs import check_writable

    if not Path(os.path.realpath(path)).parent.is_dir():
        raise typer.BadParameter(f"{format_value(str(path))}: its folder does not exist.", param_hint="-o")
    try:
        check_writable(path, sources)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="-o") from error
