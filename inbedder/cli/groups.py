"""``inbedder cluster``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.crossing import By, Crossing, DateFormat, Every, Over
from inbedder.cli.inputs import guided_vectors, load_embedder, read_texts
from inbedder.cli.options import (
    Backbone,
    BatchSize,
    Cache,
    CacheSize,
    Device,
    Dtype,
    GuardCells,
    Guided,
    Input,
    Instructions,
    Layer,
    MaxLength,
    Model,
    Pooling,
    Quantization,
    SkipBad,
    Subtract,
    Template,
    TextColumn,
    TruncationSide,
    check_outputs,
    say,
)

if TYPE_CHECKING:
    from inbedder.grouping.clustering import ClusterResult
    from inbedder.tables import Table


def cluster(
    source: Input,
    instructions: Instructions,
    output: Annotated[
        list[Path],
        typer.Option("-o", "--output", help="A .html report or a .csv, .json or .parquet file of assignments; may repeat."),
    ] = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto.")] = "auto",
    label_column: Annotated[str | None, typer.Option(help="A column of known labels to compare the groups with.")] = None,
    by: By = None,
    over: Over = None,
    every: Every = "auto",
    date_format: DateFormat = None,
    seed: Annotated[int, typer.Option(help="Seed of k-means.")] = 0,
    model: Model = "mini",
    pooling: Pooling = None,
    layer: Layer = -1,
    template: Template = None,
    max_length: MaxLength = 512,
    truncation_side: TruncationSide = "right",
    quantization: Quantization = None,
    backbone: Backbone = None,
    dtype: Dtype = None,
    device: Device = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    cache: Cache = None,
    cache_size: CacheSize = None,
    guided: Guided = None,
    guard_cells: GuardCells = True,
    subtract_instruction: Subtract = None,
    namer: Annotated[
        str,
        typer.Option(
            help="What names the groups: words (of the answers), class-tfidf, central (the most central answer), model (a title "
            "that the model writes, best with small) or model:NAME."
        ),
    ] = "words",
    one_question: Annotated[
        bool,
        typer.Option("--one-question", help="The -i are wordings of one question: group once, by the mean of their vectors."),
    ] = False,
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    check_outputs(output, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet"), source)
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    if one_question and guided is not None:
        raise typer.BadParameter("it maps the vectors of one wording; leave it out with --one-question.", param_hint="--guided")
    table = read_texts(source, text_column, skip_bad)
    given = None if label_column is None else table.column(label_column)
    crossing = Crossing(table, by or [], over, every, date_format)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how["truncation_side"] = truncation_side
    how |= {"quantization": quantization, "backbone": backbone, "dtype": dtype, "device": device}
    how |= {"subtract_instruction": subtract_instruction, "cache_size": cache_size}
    embedder = load_embedder(model, **how)
    from inbedder.grouping.naming import find_namer, set_apart

    options: dict[str, Any] = {"k": k if k == "auto" else int(k), "seed": seed, "given_labels": given, "batch_size": batch_size}
    options |= {"model": embedder, "namer": find_namer(namer, embedder)}  # looked up before the work that needs it last
    results = _grouped(table.texts, instructions, one_question, guided, options)
    if not embedder.backbone.answers:
        say(f"{model} does not answer, so the groups are named by the words of their texts.")
    results = set_apart(results)
    crossing.cross(results)
    _write_groups(results, table, crossing, output, guard_cells)
    crossing.show()


def _grouped(
    texts: list[str], instructions: list[str], one_question: bool, guided: int | None, options: dict[str, Any]
) -> list[ClusterResult]:
    """One grouping per instruction, or one for all of them."""
    from inbedder.grouping.clustering import cluster as cluster_texts

    if one_question:
        return [cluster_texts(texts, instructions, **options)]
    embedder, batch_size = options["model"], options["batch_size"]
    found: Any = (
        embedder.encode_many(texts, instructions, batch_size=batch_size)
        if guided is None
        else guided_vectors(embedder, texts, instructions, guided, batch_size)
    )
    return [
        cluster_texts(texts, instruction, embeddings=vectors, **options)
        for instruction, vectors in zip(instructions, found, strict=True)
    ]


def _write_groups(
    results: Sequence[ClusterResult], table: Table, crossing: Crossing, output: Sequence[Path], guard_cells: bool
) -> None:
    from inbedder.grouping.stability import mark

    for path in output:
        if path.suffix.lower() == ".html":
            from inbedder.grouping.report.page import save_report

            save_report(results, path, crossings=crossing.tables, timelines=crossing.timelines, numbers=table.rows)
        else:
            from inbedder.outputs import write_records

            write_records((row for result in results for row in result.rows(table.rows)), path, guard_cells=guard_cells)
    for result in results:
        say(" / ".join(result.wordings or [result.instruction]))
        for name, size, stability in zip(result.names, result.sizes, result.stability or (), strict=True):
            say(f"  {size:6d}  {name}" + (f"  (shaky: {stability:.2f})" if mark(stability) == "shaky" else ""))
    say(f"Written: {', '.join(str(path) for path in output)}")
