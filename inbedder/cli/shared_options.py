"""The options that commands share. This module imports nothing heavy."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

INPUT, OUTPUT, ANSWERS, SPEED, JOBS = "Input", "Output", "Answers", "Speed", "Jobs with Ray"
"""Panels of options in --help; options without a panel come first."""
TABLE_TYPES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")
"""Extensions of the tables that commands write."""

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="A .csv, .tsv, .jsonl, .json, .txt (also .gz), .parquet or .xlsx file, or - for standard input."
    ),
]
Instruction = Annotated[
    str | None,
    typer.Option(
        "-i",
        "--instruction",
        help="The question to ask about each text, or a named one such as @topic.",
        callback=lambda value: check_instruction(value),
    ),
]
Instructions = Annotated[
    list[str],
    typer.Option(
        "-i",
        "--instruction",
        help="The question to group by, or a named one such as @topic; repeat to compare groupings.",
        callback=lambda values: check_instructions(values),
    ),
]
TextColumn = Annotated[
    list[str] | None,
    typer.Option(
        help="Column with the texts; repeat to join columns. Default: the column named text, or the only one with text."
    ),
]
GuardCells = Annotated[
    bool,
    typer.Option(
        "--guard-cells/--no-guard-cells",
        help="In a .csv or .tsv, put an apostrophe before texts that spreadsheets would run as formulas.",
        rich_help_panel=OUTPUT,
    ),
]
Model = Annotated[str, typer.Option(help="mini, small, medium or multilingual (see inbedder models), a folder or a hub id.")]
ModelOfCodebook = Annotated[
    str | None,
    typer.Option(
        help="mini, small, medium or multilingual (see inbedder models), a folder or a hub id; default: mini, or the codebook's."
    ),
]
VectorsOutput = Annotated[Path, typer.Option("-o", "--output", help="A .npy or .parquet file; with --engine ray, a folder.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of unique ids; default: the row number.", rich_help_panel=JOBS)]
Number = Annotated[int, typer.Option("-n", "--n", min=1, help="Number of answers per text.", rich_help_panel=ANSWERS)]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.", rich_help_panel=ANSWERS)]
TopP = Annotated[float, typer.Option(help="Nucleus sampling probability (top-p).", rich_help_panel=ANSWERS)]
Seed = Annotated[int, typer.Option(help="Seed of sampled answers.", rich_help_panel=ANSWERS)]

BatchSize = Annotated[int, typer.Option(min=1, help="Batch size.", rich_help_panel=SPEED)]
Guided = Annotated[
    int | None,
    typer.Option(
        min=50, help="Encode only N sampled texts under the question and estimate the rest.", metavar="N", rich_help_panel=SPEED
    ),
]

Engine = Annotated[
    str, typer.Option(help="local (this process) or ray (several workers or machines; a rerun resumes).", rich_help_panel=JOBS)
]
Workers = Annotated[int, typer.Option(min=1, help="Number of worker processes.", rich_help_panel=JOBS)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads per worker; default: cores divided by workers.", rich_help_panel=JOBS)
]
Address = Annotated[
    str | None, typer.Option(help="Address of a running Ray cluster; default: this machine.", rich_help_panel=JOBS)
]


DIRECTION_MARKS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Invisible characters that reorder the text around them (Unicode Standard Annex 9)."""
CONTROL_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in DIRECTION_MARKS},
}
"""Escapes of the control characters that a terminal would execute, and of those that would reorder its text."""


def print_message(message: str) -> None:
    """Print a message on stderr."""
    typer.echo(message.translate(CONTROL_ESCAPES), err=True)


def print_stage(message: str) -> None:
    """Print what a long command does next, where no terminal shows a progress bar."""
    if not sys.stderr.isatty():
        print_message(message)


class EscapingFormatter(logging.Formatter):
    """Formats log records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without control characters."""
        return super().format(record).translate(CONTROL_ESCAPES)


def is_debugging() -> bool:
    """Return whether the command line asks for tracebacks; errors before and after typer's work need to know, too."""
    return "--debug" in sys.argv


def print_result(text: str) -> None:
    """Print a result on stdout."""
    typer.echo(text.translate(CONTROL_ESCAPES))


def print_text_columns(columns: Iterable[str]) -> None:
    """Print the columns in which the texts were detected."""
    from inbedder.errors import format_names

    print_message(f"The texts are in column {format_names(list(dict.fromkeys(columns)))}.")


def parse_group_count(k: str) -> int | str:
    """Parse a value of ``-k``: a number of groups, or "auto"."""
    if k != "auto" and not (k.isdecimal() and len(k) < 10):
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    return k if k == "auto" else int(k)


def check_instruction(instruction: str | None) -> str | None:
    """Return the value of ``-i``, or raise BadParameter if it is blank or an unknown named instruction."""
    return _check_question(instruction, "-i")


def check_question_argument(question: str) -> str:
    """Return the value of the argument QUESTION, or raise BadParameter as for ``-i``."""
    return _check_question(question, "QUESTION") or ""


def _check_question(instruction: str | None, param_hint: str) -> str | None:
    if instruction is not None and not instruction.strip():
        raise typer.BadParameter("the question is empty.", param_hint=param_hint)
    if instruction is not None and instruction.startswith("@"):
        from inbedder.errors import TemplateError
        from inbedder.prompting.templates import resolve_instruction

        try:
            resolve_instruction(instruction)
        except TemplateError as error:
            raise typer.BadParameter(str(error), param_hint=param_hint) from error
    return instruction


def check_instructions(instructions: Sequence[str]) -> list[str]:
    """Check each value of a repeated ``-i``."""
    return [check_instruction(instruction) or "" for instruction in instructions]


def parse_group_counts(k: Sequence[str], groupings: int) -> list[int | str]:
    """Parse the values of ``-k``, one for all groupings or one per grouping, into one per grouping."""
    counts = [parse_group_count(value) for value in k]
    if len(counts) not in (1, groupings):
        raise typer.BadParameter(f"give it once, or once per grouping ({groupings} times).", param_hint="-k")
    return counts * groupings if len(counts) == 1 else counts


def check_output(path: Path | None, allowed: tuple[str, ...], source: str | None = None, param_hint: str = "-o") -> None:
    """Check before the model runs that an output has an allowed suffix, is writable and not the input."""
    from inbedder.errors import format_value

    if path is None:
        return
    if path.suffix.lower() not in allowed:
        raise typer.BadParameter(
            f"{format_value(str(path))}: give a file that ends in {', '.join(allowed)}.", param_hint=param_hint
        )
    _check_writable(path, [] if source is None else [source])


def check_outputs(paths: Sequence[Path], allowed: tuple[str, ...], source: str) -> None:
    """Check before the model runs that outputs are different, writable files other than the input."""
    for path in paths:
        check_output(path, allowed, source)
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise typer.BadParameter("two outputs are the same file; give each its own.", param_hint="-o")


def check_folder(path: Path, source: str) -> None:
    """Check the output folder of a Ray job, which need not exist, before the job starts."""
    from inbedder.errors import format_value
    from inbedder.io.files import is_same_file

    if path.suffix or path.is_file():
        message = f"{format_value(str(path))}: give a folder with --engine ray, such as vectors/."
        raise typer.BadParameter(message, param_hint="-o")
    if is_same_file(source, path):
        raise typer.BadParameter(f"{format_value(str(path))} is the input itself. Choose a new folder.", param_hint="-o")
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
