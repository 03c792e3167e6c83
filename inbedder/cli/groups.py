"""``inbedder cluster``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.assigning import check_kept, save_groupings
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
    from inbedder.embedder import InBedder
    from inbedder.grouping.clustering import ClusterResult
    from inbedder.tables import Table


Method = Annotated[str, typer.Option(help="k-means, agglomerative (a tree), or hdbscan (some texts may fit no group).")]
Save = Annotated[Path | None, typer.Option(help="A folder that keeps the groups; inbedder assign puts new texts into them.")]


def cluster(
    source: Input,
    instructions: Instructions,
    output: Annotated[
        list[Path],
        typer.Option("-o", "--output", help="A .html report or a .csv, .json or .parquet file of assignments; may repeat."),
    ] = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto.")] = "auto",
    label_column: Annotated[str | None, typer.Option(help="A column of known labels to compare the groups with.")] = None,
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
    method: Method = "k-means",
    save: Save = None,
    titles: Annotated[bool, typer.Option("--titles", help="Let the model write a title per group (best with small).")] = False,
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    check_outputs(output, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet"), source)
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    check_kept(save, len(instructions))
    from inbedder.grouping.partition import check_groups

    table = read_texts(source, text_column, skip_bad)
    wanted = k if k == "auto" else int(k)
    check_groups(wanted, len(table.texts), method)
    given = None if label_column is None else table.column(label_column)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how["truncation_side"] = truncation_side
    how |= {"quantization": quantization, "backbone": backbone, "dtype": dtype, "device": device}
    how |= {"subtract_instruction": subtract_instruction, "cache_size": cache_size}
    embedder = load_embedder(model, **how)
    options = {"k": wanted, "seed": seed, "given_labels": given, "titles": titles, "method": method}
    results = _grouped(embedder, table.texts, instructions, guided, batch_size, options)
    if not embedder.backbone.answers:
        say(f"{model} does not answer, so the groups are named by the words of their texts.")
    _write_groups(results, table, output, guard_cells)
    if save is not None:
        save_groupings(results, save)


def _grouped(
    embedder: InBedder, texts: list[str], instructions: list[str], guided: int | None, batch_size: int, options: dict[str, Any]
) -> list[ClusterResult]:
    """A grouping per question."""
    from inbedder.grouping.clustering import cluster as cluster_texts

    found: Any = (
        embedder.encode_many(texts, instructions, batch_size=batch_size)
        if guided is None
        else guided_vectors(embedder, texts, instructions, guided, batch_size)
    )
    return [
        cluster_texts(texts, instruction, model=embedder, embeddings=vectors, batch_size=batch_size, **options)
        for instruction, vectors in zip(instructions, found, strict=True)
    ]


def _write_groups(results: Sequence[ClusterResult], table: Table, output: Sequence[Path], guard_cells: bool) -> None:
    for path in output:
        if path.suffix.lower() == ".html":
            from inbedder.grouping.report.page import save_report

            save_report(results, path)
        else:
            from inbedder.outputs import write_records

            write_records((row for result in results for row in result.rows(table.rows)), path, guard_cells=guard_cells)
    for result in results:
        say(f"{result.instruction}")
        for name, size in zip(result.names, result.sizes, strict=True):
            say(f"  {size:6d}  {name}")
        if result.choice is not None:
            say(f"  {result.choice}")
    say(f"Written: {', '.join(str(path) for path in output)}")
