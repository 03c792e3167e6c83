"""``inbedder index`` and ``inbedder search``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import load_embedder, read_texts
from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import CONTROLS, Delimiter, Input, Instruction, Model, SkipBad, TextColumn, say

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.io.tables import Table

app = typer.Typer(no_args_is_help=True, help="Build an index of texts, add to it, look at it, tidy it or check it.")
Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.")]
Ids = Annotated[
    str | None,
    typer.Option("--id-column", help="Column of unique ids; by default id, or else a hash of each row."),
]
Columns = Annotated[list[str], typer.Option("--column", help="A column to keep beside the texts; may repeat. By default all.")]
WIDE = 140
"""Characters of a table that goes into no terminal."""


@app.command()
@model_options
def build(
    source: Input,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the index; a build that was stopped goes on.")],
    instruct: Annotated[
        list[str], typer.Option("--instruct", help="A question whose vectors are computed now, not when it is asked; may repeat.")
    ] = [],  # noqa: B006 - typer copies defaults
    model: Model = "mini",
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    id_column: Ids = None,
    column: Columns = [],  # noqa: B006
    skip_bad: SkipBad = False,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Embed texts once, without an instruction, into a folder that is searched under any."""
    from inbedder.search.index import Index
    from inbedder.search.lance_engine import import_lancedb

    import_lancedb()
    table = read_texts(source, text_column, skip_bad, delimiter)
    columns = {"text_column": _name_of_texts(table), "id_column": id_column, "columns": column or None}
    embedder = load_embedder(model, **model_options)
    index = Index.create(output, _records(table), embedder, **columns)  # type: ignore[arg-type]
    for question in instruct:
        index.instruct(question)
    say(f"{output}: {len(index):,} rows. Search it: inbedder search {output} QUERY -i QUESTION")


@app.command()
def add(
    index: Folder,
    source: Input,
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    id_column: Ids = None,
    column: Columns = [],  # noqa: B006
    skip_bad: SkipBad = False,
) -> None:
    """Add the rows whose ids are not there yet."""
    from inbedder.search.index import Index

    table = read_texts(source, text_column, skip_bad, delimiter)
    opened = Index.open(index)
    how = {"text_column": _name_of_texts(table), "id_column": id_column, "columns": column or None}
    added = opened.add(_records(table), **how)  # type: ignore[arg-type]
    say(f"{index}: {added:,} rows added, {len(table.texts) - added:,} were there already; it holds {len(opened):,}.")


@app.command()
def info(index: Folder) -> None:
    """What an index holds, and the model that it was built with."""
    from inbedder.search.index import Index

    found = Index.open(index).info()
    typer.echo(f"{found['rows']:,} rows of {', '.join(found['columns'])}".translate(CONTROLS))
    typer.echo(f"model {found['model']} ({found['revision']}); {found['engine']}".translate(CONTROLS))
    for known in found["instructions"]:
        missing = f", {known['missing']:,} rows to come" if known["missing"] else ""
        read = "every text read" if known["read"] == "all" else f"mapped from {known['read']} texts"
        typer.echo(f"instructed: {known['instruction']} ({read}{missing})".translate(CONTROLS))
    typer.echo(
        f"{found['bytes'] / 1e6:,.1f} MB in {found['versions']} versions{'' if found['built'] else '; not built to the end'}"
    )


@app.command()
def compact(
    index: Folder, keep: Annotated[float, typer.Option(min=0, help="Days that versions stay which newer ones replaced.")] = 7.0
) -> None:
    """Merge small files, bring the search indexes up to date and remove old versions."""
    from datetime import timedelta

    from inbedder.search.index import Index

    opened = Index.open(index)
    before = opened.storage.size
    opened.compact(timedelta(days=keep))
    say(f"{index}: {before / 1e6:,.1f} MB before, {opened.storage.size / 1e6:,.1f} MB now.")


@app.command()
def verify(index: Folder) -> None:
    """Read everything and check it; exit code 1 where something is wrong."""
    from inbedder.search.index import Index

    opened = Index.open(index)
    wrong = opened.verify()
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(1)
    say(f"{index}: {len(opened):,} rows, every one is whole.")


def search(
    index: Folder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is searched for.")],
    instruction: Instruction = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Rows to show.")] = 10,
    candidates: Annotated[int, typer.Option(min=1, help="Nearest rows that are read again under the question.")] = 200,
    where: Annotated[str | None, typer.Option(help='An SQL filter on the columns, such as "stars < 3".')] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Find candidates by their words too (BM25).")] = False,
    weight: Annotated[
        str, typer.Option(help="Of the generic score beside the instructed one: a number from 0 to 1, or auto.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line instead of a table.")] = False,
) -> None:
    """Find the texts of an index that are nearest to a query in what is asked."""
    from inbedder.search.index import Index

    try:
        share: float | str = weight if weight == "auto" else float(weight)
    except ValueError as error:
        raise typer.BadParameter("give a number from 0 to 1, or auto.", param_hint="--weight") from error
    found = Index.open(index).search(query, instruction, k, candidates, where, hybrid, weight=share)
    if as_json:
        for record in json.loads(found.to_json(orient="records", date_format="iso")):
            typer.echo(json.dumps(record))
    else:
        _show(found)


def _records(table: Table) -> list[dict[str, object]]:
    """Rows as they were read, those without a text left out."""
    name = _name_of_texts(table)
    return [{**record, name: text} for record, text in zip(table.records, table.texts, strict=True)]


def _name_of_texts(table: Table) -> str:
    """Column of the texts in the index: as in the table, or where several were joined, "text"."""
    return table.text_columns[0] if len(table.text_columns) == 1 else "text"


def _show(found: pd.DataFrame) -> None:
    """A table for people: score, answer and text, then the other columns."""
    from rich.console import Console
    from rich.table import Table as Sheet
    from rich.text import Text

    first = [name for name in ("score", "answer", "text") if name in found.columns]
    hidden = {"id", "generic_score", "instructed_score"}
    names = [*first, *(name for name in found.columns if name not in first and name not in hidden)]
    sheet = Sheet(*names)
    for row in found[names].itertuples(index=False):
        cells = [f"{cell:.3f}" if name == "score" else str(cell) for name, cell in zip(names, row, strict=True)]
        sheet.add_row(*(Text(cell.translate(CONTROLS)) for cell in cells))
    Console(width=None if sys.stdout.isatty() else WIDE).print(sheet)
