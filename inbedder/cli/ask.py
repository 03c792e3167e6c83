"""The command ``inbedder ask``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.assign import Save, check_save_folders
from inbedder.cli.cluster_output import Title, choose_title, write_results
from inbedder.cli.crosstab_tables import CrossTabOptions, CrossTabulation
from inbedder.cli.shared_options import (
    TABLE_TYPES,
    GuardCells,
    check_outputs,
    check_question_argument,
    parse_group_count,
    print_stage,
)
from inbedder.cli.timing_option import with_timings
from inbedder.errors import format_count
from inbedder.runtime.timings import time_stage

Question = Annotated[
    str,
    typer.Argument(
        metavar="QUESTION",
        help="The question to group by, or a named one such as @topic.",
        callback=check_question_argument,
    ),
]
Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o", "--output", help="A .html report, or the rows with the groups (.csv .tsv .jsonl .json .parquet .xlsx); repeatable."
    ),
]


@with_timings
def ask(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")],
    question: Question,
    output: Outputs = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto.")] = "auto",
    sample: Annotated[int, typer.Option(min=50, help="Number of texts to read; the others are estimated.")] = 1000,
    crosstab_options: CrossTabOptions = CrossTabOptions(),
    save: Save = None,
    title: Title = None,
    guard_cells: GuardCells = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample and of the groups.")] = 0,
) -> None:
    """Group an index's texts by a new question."""
    check_outputs(output, (".html", *TABLE_TYPES), str(index))
    count = parse_group_count(k)
    check_save_folders(save, 1)
    with time_stage("loading"):
        from inbedder.io.tables import make_table
        from inbedder.search.asking import group_rows, read_rows_to_group
        from inbedder.search.index import Index

        opened_index = Index.open(index)
    rows = read_rows_to_group(opened_index.storage, question)
    table = make_table(rows.select(opened_index.storage.columns).to_pylist())
    cross_tabulation = CrossTabulation(table, crosstab_options)
    model = opened_index.model
    print_stage(f"Reading {min(sample, len(rows)):,} of {format_count(len(rows), 'text')}, and grouping.")
    with time_stage("groups"):
        result = group_rows(model, rows, question, sample=sample, k=count, seed=seed)
    write_results([result], table, cross_tabulation, output, save, title=choose_title(title, str(index)), guard_cells=guard_cells)
