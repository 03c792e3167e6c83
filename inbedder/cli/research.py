"""The commands that train and measure. Heavy imports wait until one is called."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.options import Cache, CacheSize, Layer, Pooling, Subtract, TextColumn, check_output, say, say_columns

MeasuredOn = Annotated[Path | None, typer.Option(help="A table with two label columns or of C-STS, or a folder of known sets.")]
Instructions = Annotated[Path | None, typer.Option(help="The authors' instructions (json), for their robustness sets (--hub).")]


def finetune(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML recipe, or a shipped one by name, such as csts-bi.")],
    changes: Annotated[list[str], typer.Option("--set", help="Change a setting: section.key=value. May repeat.")] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show prompts, targets and a table of the data; train nothing.")
    ] = False,
) -> None:
    """Fine-tune a model as a recipe says: a language model to answer in a few content words, or by another method."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from finetune.methods import read_method

    method, settings = read_method(recipe, changes)
    if dry_run:
        typer.echo(method.preview(settings))
        return
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("finetune").setLevel(logging.INFO)
    folder = method.finetune(settings)
    embeds = (folder / "inbedder.json").is_file()
    use = f"Use it: inbedder embed INPUT -i '...' --model {folder}" if embeds else f"{folder / 'README.md'} says how to use it."
    say(f"{folder}: done. {use}")


def evaluate(
    model: Annotated[list[str], typer.Option(help="mini, small, a hub id or a folder; may repeat.")] = ["mini"],  # noqa: B006
    baseline: Annotated[
        list[str], typer.Option(help="A model of mteb or sentence-transformers to compare with; may repeat.")
    ] = [],  # noqa: B006
    task: Annotated[list[str], typer.Option(help="Only tasks whose name contains this; may repeat.")] = [],  # noqa: B006
    data: MeasuredOn = None,
    hub: Annotated[bool, typer.Option("--hub", help="Add the papers' own sets from the hub, at pinned revisions.")] = False,
    instructions: Instructions = None,
    criterion: Annotated[list[str], typer.Option(help="column=question, twice, for a table.")] = [],  # noqa: B006
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; finished cells in it are kept.")] = Path(
        "results.json"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of k-means.")] = 10,
    limit: Annotated[int | None, typer.Option(min=10, help="At most so many rows of the table or of each known set.")] = None,
    protocol: Annotated[
        str, typer.Option(help="k-means, or paper: mini-batch k-means, one seed, texts cut at their start.")
    ] = "k-means",
    mteb_results: Annotated[Path | None, typer.Option(help="Folder for mteb's own result files of the standard tasks.")] = None,
    pooling: Pooling = None,
    layer: Layer = -1,
    subtract_instruction: Subtract = None,
    cache: Cache = None,
    cache_size: CacheSize = None,
    text_column: TextColumn = None,
) -> None:
    """Measure instruction following: each model with its instruction and without, on the shipped sets or on your own table."""
    check_output(output, (".json",), None if data is None else str(data))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from evaluation.embedders import inbedder_embedders, mteb_embedders
    from evaluation.runner import run
    from evaluation.tasks import Data, build_tasks
    from inbedder.tables import find_columns

    if protocol not in ("k-means", "paper"):
        raise typer.BadParameter("choose k-means or paper.", param_hint="--protocol")
    if any("=" not in pair for pair in criterion):
        raise typer.BadParameter("give column=question.", param_hint="--criterion")
    criteria = dict(pair.split("=", 1) for pair in criterion)
    tasks = build_tasks(Data(data, hub, criteria, text_column, limit, protocol, instructions), task)
    if data is not None and criteria and not text_column:
        say_columns(find_columns(str(data), None))
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "cache": cache, "cache_size": cache_size}
    how |= {"subtract_instruction": subtract_instruction, "truncation_side": "left" if protocol == "paper" else "right"}
    embedders = [embedder for name in model for embedder in inbedder_embedders(name, **how)]
    embedders += [embedder for name in baseline for embedder in mteb_embedders(name)]

    def report(cell: Any) -> None:
        if not sys.stderr.isatty():  # a progress bar is shown there instead
            say(f"{cell.task} · {cell.model} · {cell.vectors} {cell.seed}")

    cells = run(embedders, tasks, output, range(1 if protocol == "paper" else seeds), report)
    if mteb_results is not None:
        from evaluation.mteb_results import save_as_mteb

        save_as_mteb(cells, tasks, mteb_results)
    _show(cells, against_the_paper=hub)
    say(f"Written: {output}")


def _show(cells: Sequence[Any], *, against_the_paper: bool) -> None:
    """Print tables of what was measured, and of how it compares with the published numbers."""
    from evaluation.paper import expected_and_found
    from evaluation.results import aligned, table

    for kind in ("raw", "centred"):
        rows = table(cells, kind)
        if len(rows) > 1:  # an encoder of pairs has no vectors to centre
            typer.echo(f"\n{kind} vectors\n{aligned(rows)}")
    if against_the_paper and (rows := expected_and_found(cells)):
        typer.echo(f"\nexpected (the paper's numbers) and found\n{aligned(rows)}")
