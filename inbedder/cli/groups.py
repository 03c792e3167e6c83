"""``inbedder cluster``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.groupings import write_groups
from inbedder.cli.inputs import load_embedder, read_texts, vectors_of
from inbedder.cli.options import (
    Backbone,
    BatchSize,
    Cache,
    CacheSize,
    Delimiter,
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


def cluster(
    source: Input,
    instructions: Instructions,
    output: Annotated[
        list[Path],
        typer.Option(
            "-o",
            "--output",
            help="A .html report, or your own table with group, group_name, answer and fit (.csv .tsv .jsonl .json .parquet "
            ".xlsx). May repeat.",
        ),
    ] = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto.")] = "auto",
    label_column: Annotated[
        list[str] | None, typer.Option(help="A column of known labels to compare the groups with; may repeat.")
    ] = None,
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
    delimiter: Delimiter = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    cache: Cache = None,
    cache_size: CacheSize = None,
    guided: Guided = None,
    guard_cells: GuardCells = True,
    subtract_instruction: Subtract = None,
    titles: Annotated[bool, typer.Option("--titles", help="Let the model write a title per group (best with small).")] = False,
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    check_outputs(output, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx"), source)
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    table = read_texts(source, text_column, skip_bad, delimiter)
    given = {name: table.column(name) for name in label_column or ()}
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how["truncation_side"] = truncation_side
    how |= {"quantization": quantization, "backbone": backbone, "dtype": dtype, "device": device}
    how |= {"subtract_instruction": subtract_instruction, "cache_size": cache_size}
    embedder = load_embedder(model, **how)
    from inbedder.grouping.clustering import cluster as cluster_texts

    found = vectors_of(embedder, table.texts, instructions, guided, batch_size)
    options: dict[str, Any] = {"k": k if k == "auto" else int(k), "seed": seed, "given_labels": given}
    options |= {"batch_size": batch_size, "titles": titles}
    results = [
        cluster_texts(table.texts, instruction, model=embedder, embeddings=vectors, **options)
        for instruction, vectors in zip(instructions, found, strict=True)
    ]
    if not embedder.backbone.answers:
        say(f"{model} does not answer, so the groups are named by the words of their texts.")
    write_groups(results, table, output, guard_cells)
