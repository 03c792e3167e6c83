"""The commands ``inbedder index`` and ``inbedder search``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import TableOptions, load_embedder
from inbedder.cli.model_options import with_model_options
from inbedder.cli.parameters import with_expanded_arguments
from inbedder.cli.shared_options import CONTROL_ESCAPES, Input, Instruction, Model, print_message, print_result
from inbedder.cli.timing_option import with_timings
from inbedder.runtime.timings import time_stage

if TYPE_CHECKING:
    import pandas as pd

    from inbedder.io.tables import Table
    from inbedder.search.index_rows import Rows

app = typer.Typer(no_args_is_help=True, help="Build, extend or verify a search index.")
Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")]
Ids = Annotated[str | None, typer.Option("--id-column", help="Column of unique ids; default: id, or else a hash of each row.")]
Columns = Annotated[list[str], typer.Option("--column", help="Column to store with the texts; repeatable. Default: all.")]
TABLE_WIDTH = 140
"""Width in characters of a table that is not printed to a terminal."""


@app.command(epilog="Example: inbedder index build reviews.csv -o index/")
@with_timings
@with_expanded_arguments
@with_model_options
def build(
    source: Input,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the index; a rerun resumes an interrupted build.")],
    instruct: Annotated[
        list[str], typer.Option("--instruct", help="Question whose vectors are computed in advance; repeatable.")
    ] = [],  # noqa: B006 - typer copies defaults
    model: Model = "mini",
    table_options: TableOptions = TableOptions(),
    id_column: Ids = None,
    column: Columns = [],  # noqa: B006
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Build an index."""
    with time_stage("loading"):
        from inbedder.search.index import Index
        from inbedder.search.lance_engine import import_lancedb
        from inbedder.search.storage import Storage

        import_lancedb()
    Storage.check_new(output)
    table = table_options.read(source)
    rows = _read_rows(table, id_column, column)
    embedder = load_embedder(model, **model_options)
    with time_stage("index"):
        index = Index.create(output, rows, embedder)
        for question in instruct:
            index.instruct(question)
    print_message(f"{output}: {len(index):,} rows. Search it: inbedder search {output} QUERY -i QUESTION")


@app.command(epilog="Example: inbedder index add index/ new_reviews.csv")
@with_expanded_arguments
def add(
    index: Folder,
    source: Input,
    table_options: TableOptions = TableOptions(),
    id_column: Ids = None,
    column: Columns = [],  # noqa: B006
) -> None:
    """Add rows with new ids to an index."""
    from inbedder.search.index import Index

    table = table_options.read(source)
    opened_index = Index.open(index)
    added = opened_index.add(_read_rows(table, id_column, column))
    print_message(
        f"{index}: {added:,} rows added, {len(table.texts) - added:,} were already present; it now holds {len(opened_index):,}."
    )


@app.command(epilog="Example: inbedder index info index/")
@with_expanded_arguments
def info(index: Folder) -> None:
    """Print the contents and model of an index."""
    from inbedder.search.index import Index

    metadata = Index.open(index).info()
    print_result(f"{metadata['rows']:,} rows of {', '.join(metadata['columns'])}")
    print_result(f"model {metadata['model']} ({metadata['revision']}); {metadata['engine']}")
    for entry in metadata["instructions"]:
        missing = f", {entry['missing']:,} rows missing" if entry["missing"] else ""
        source = "every text encoded" if entry["read"] == "all" else f"mapped from {entry['read']} texts"
        print_result(f"instructed: {entry['instruction']} ({source}{missing})")
    state = "" if metadata["built"] else "; the build is incomplete"
    print_result(f"{metadata['bytes'] / 1e6:,.1f} MB in {metadata['versions']} versions{state}")


@app.command(epilog="Example: inbedder index compact index/")
@with_expanded_arguments
def compact(index: Folder, keep: Annotated[float, typer.Option(min=0, help="Days to keep replaced versions.")] = 7.0) -> None:
    """Merge small files and drop old versions."""
    from datetime import timedelta

    from inbedder.search.index import Index

    opened_index = Index.open(index)
    old_size = opened_index.storage.size
    opened_index.compact(timedelta(days=keep))
    print_message(f"{index}: {old_size / 1e6:,.1f} MB before, {opened_index.storage.size / 1e6:,.1f} MB now.")


@app.command(epilog="Example: inbedder index verify index/")
@with_expanded_arguments
def verify(index: Folder) -> None:
    """Verify every row; exit with 1 on damage."""
    from inbedder.search.index import Index

    opened_index = Index.open(index)
    damages = opened_index.verify()
    for line in damages:
        print_message(line)
    if damages:
        raise typer.Exit(1)
    print_message(f"{index}: {len(opened_index):,} rows, all intact.")


def search(
    index: Folder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Text to search for.")],
    instruction: Instruction = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results.")] = 10,
    candidates: Annotated[int, typer.Option(min=1, help="Number of nearest rows to rerank under the question.")] = 200,
    sql_filter: Annotated[str | None, typer.Option("--where", help='SQL filter on the columns, such as "stars < 3".')] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Also find candidates by their words (BM25).")] = False,
    weight: Annotated[str, typer.Option(help="Weight of the score without a question: a number from 0 to 1, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Search an index under a question."""
    try:
        share: float | str = weight if weight == "auto" else float(weight)
    except ValueError as error:
        raise typer.BadParameter("give a number from 0 to 1, or auto.", param_hint="--weight") from error
    from inbedder.search.index import Index

    opened_index = Index.open(index)
    rows = opened_index.search(query, instruction, k, candidates, sql_filter, hybrid, weight=share)
    if "answer" in rows.columns and instruction is not None:
        print_message(f"The answer about the query: {opened_index.model.answer(query, instruction)[0]}")
    if as_json:
        for record in json.loads(rows.to_json(orient="records", date_format="iso")):
            print_result(json.dumps(record, allow_nan=False))
    else:
        _print_rows(rows)


def _read_rows(table: Table, id_column: str | None, columns: list[str]) -> Rows:
    """Read the rows of a table that have a text. Joined text columns are called "text"."""
    from inbedder.search.index_rows import read_rows

    name = table.text_columns[0] if len(table.text_columns) == 1 else "text"
    records = [{**record, name: text} for record, text in zip(table.records, table.texts, strict=True)]
    return read_rows(records, text_column=name, id_column=id_column, columns=columns or None)


def _print_rows(rows: pd.DataFrame) -> None:
    """Print results as a table: id, score, answer and text, then the other columns."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    first_names = [name for name in ("id", "score", "answer", "text") if name in rows.columns]
    hidden = {"generic_score", "instructed_score"}
    names = [*first_names, *(name for name in rows.columns if name not in first_names and name not in hidden)]
    table = RichTable(*names)
    for row in rows[names].itertuples(index=False):
        cells = [f"{cell:.3f}" if name == "score" else str(cell) for name, cell in zip(names, row, strict=True)]
        table.add_row(*(Text(cell.translate(CONTROL_ESCAPES)) for cell in cells))
    Console(width=None if sys.stdout.isatty() else TABLE_WIDTH).print(table)
