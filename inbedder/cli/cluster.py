"""``inbedder cluster``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.assign import check_kept, save_groupings
from inbedder.cli.cluster_output import write_groups
from inbedder.cli.crosstab_tables import By, Crossing, DateFormat, Every, Over
from inbedder.cli.inputs import load_embedder, read_texts, vectors_of
from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import (
    BatchSize,
    Delimiter,
    GuardCells,
    Guided,
    Input,
    Instructions,
    Model,
    SkipBad,
    TextColumn,
    check_outputs,
    group_counts,
    say,
)
from inbedder.grouping.namers import NAMERS

if TYPE_CHECKING:
    from inbedder.grouping.result import ClusterResult

Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o",
        "--output",
        help="A .html report, or your own table with group, group_name, answer and fit (.csv .tsv .jsonl .json .parquet "
        ".xlsx). May repeat.",
    ),
]
LabelColumns = Annotated[list[str] | None, typer.Option(help="A column of known labels to compare the groups with; may repeat.")]
GroupCounts = Annotated[list[str], typer.Option("-k", help="Number of groups, or auto. Repeat to give each -i its own.")]
Method = Annotated[str, typer.Option(help="k-means, agglomerative (a tree), or hdbscan (some texts may fit no group).")]
MinSize = Annotated[int | None, typer.Option(min=2, help="hdbscan: fewest texts of a group; by default 10, or 1 in 100.")]
Namer = Annotated[
    str,
    typer.Option(help="What names the groups: " + ", ".join(f"{name} ({entry.help})" for name, entry in NAMERS.items()) + "."),
]
OneQuestion = Annotated[
    bool, typer.Option("--one-question", help="The -i are wordings of one question: group once, by the mean of their vectors.")
]
Save = Annotated[Path | None, typer.Option(help="A folder that keeps the groups; inbedder assign puts new texts into them.")]


@model_options
def cluster(
    source: Input,
    instructions: Instructions,
    output: Outputs = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: GroupCounts = ["auto"],  # noqa: B006
    method: Method = "k-means",
    min_size: MinSize = None,
    label_column: LabelColumns = None,
    by: By = None,
    over: Over = None,
    every: Every = "auto",
    date_format: DateFormat = None,
    namer: Namer = "words",
    one_question: OneQuestion = False,
    save: Save = None,
    seed: Annotated[int, typer.Option(help="Seed of k-means.")] = 0,
    model: Model = "mini",
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    guided: Guided = None,
    guard_cells: GuardCells = True,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    check_outputs(output, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx"), source)
    groupings = 1 if one_question else len(instructions)
    counts = group_counts(k, groupings)
    if one_question and guided is not None:
        raise typer.BadParameter("it maps the vectors of one wording; leave it out with --one-question.", param_hint="--guided")
    check_kept(save, groupings)
    table = read_texts(source, text_column, skip_bad, delimiter)
    from inbedder.grouping.partition import check_groups

    for count in counts:
        check_groups(count, len(table.texts), method, min_size)  # before the model is loaded
    crossing = Crossing(table, by or [], over, every, date_format)
    given = {name: table.column(name) for name in label_column or ()}
    embedder = load_embedder(model, **model_options)
    options = dict[str, Any](method=method, seed=seed, given_labels=given, min_size=min_size)
    options |= {"model": embedder, "batch_size": batch_size}
    results = _grouped(table.texts, instructions, counts, one_question, guided, namer, options)
    if not embedder.backbone.answers:
        say(f"{model} does not answer, so the groups are named by the words of their texts.")
    crossing.cross(results)
    write_groups(results, table, crossing, output, guard_cells)
    crossing.show()
    save_groupings(results, save)


def _grouped(
    texts: list[str],
    instructions: list[str],
    counts: list[int | str],
    one_question: bool,
    guided: int | None,
    namer: str,
    options: dict[str, Any],
) -> list[ClusterResult]:
    """One grouping per instruction, or one for all of them; no name comes twice."""
    from inbedder.grouping.clustering import cluster as cluster_texts
    from inbedder.grouping.naming import deduplicate_group_names, find_namer

    options["namer"] = find_namer(namer, options["model"])  # looked up before the work that needs it last
    if one_question:
        return [cluster_texts(texts, instructions, k=counts[0], **options)]
    found = vectors_of(options["model"], texts, instructions, guided, options["batch_size"])
    return deduplicate_group_names(
        [
            cluster_texts(texts, instruction, k=count, embeddings=vectors, **options)
            for instruction, count, vectors in zip(instructions, counts, found, strict=True)
        ]
    )
