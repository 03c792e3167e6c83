"""The commands that train and measure. Heavy imports wait until one is called."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import (
    TextColumn,
    check_output,
    say,
    say_columns,
)

MeasuredOn = Annotated[Path | None, typer.Option(help="A table with two label columns or of C-STS, or a folder of known sets.")]
Instructions = Annotated[Path | None, typer.Option(help="The authors' instructions (json), for their robustness sets (--hub).")]
Baselines = Annotated[list[str], typer.Option(help="A model of mteb or sentence-transformers to compare with; may repeat.")]
Compared = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="A B", help="Two models, measured and then compared item by item: difference, 95% interval, p."),
]
Results = Annotated[Path, typer.Option("-o", "--output", help="A .json file; finished cells in it are kept.")]
Protocol = Annotated[str, typer.Option(help="k-means, or paper: mini-batch k-means, one seed, texts cut at their start.")]


def finetune(
    recipe: Annotated[
        Path | None,
        typer.Argument(metavar="RECIPE", help="A YAML recipe, or a shipped one by name, such as csts-bi.", show_default=False),
    ] = None,
    changes: Annotated[list[str], typer.Option("--set", help="Change a setting: section.key=value. May repeat.")] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show prompts, targets and a table of the data; train nothing.")
    ] = False,
    init: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Write a first recipe for a table of texts, questions and answers, and stop."),
    ] = None,
) -> None:
    """Fine-tune a model as a recipe says: a language model to answer in a few content words, or by another method."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if init is not None:
        from inbedder_finetune.init_recipe import write_recipe

        recipe = recipe or Path(f"{init.name.split('.')[0]}.yaml")
        write_recipe(init, recipe)
        say(f"Written: {recipe}. Look what it would teach: inbedder finetune {recipe} --dry-run")
        return
    if recipe is None:
        raise typer.BadParameter("give a recipe, or write one: inbedder finetune --init TABLE.", param_hint="RECIPE")
    from inbedder_finetune.registry import read_method

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


@model_options
def evaluate(
    model: Annotated[list[str], typer.Option(help="mini (the default), small, a hub id or a folder; may repeat.")] = [],  # noqa: B006
    baseline: Baselines = [],  # noqa: B006
    compare: Compared = None,
    task: Annotated[list[str], typer.Option(help="Only tasks whose name contains this; may repeat.")] = [],  # noqa: B006
    data: MeasuredOn = None,
    hub: Annotated[bool, typer.Option("--hub", help="Add the papers' own sets from the hub, at pinned revisions.")] = False,
    instructions: Instructions = None,
    criterion: Annotated[list[str], typer.Option(help="column=question, twice, for a table.")] = [],  # noqa: B006
    output: Results = Path("results.json"),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of k-means.")] = 10,
    limit: Annotated[int | None, typer.Option(min=10, help="At most so many rows of the table or of each known set.")] = None,
    protocol: Protocol = "k-means",
    mteb_results: Annotated[Path | None, typer.Option(help="Folder for mteb's own result files of the standard tasks.")] = None,
    text_column: TextColumn = None,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Measure instruction following: each model with its instruction and without, on the shipped sets or on your own table."""
    check_output(output, (".json",), None if data is None else str(data))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.io.tables import find_columns
    from inbedder_evaluation.embedders import inbedder_embedders, mteb_embedders
    from inbedder_evaluation.runner import run
    from inbedder_evaluation.tasks import Data, build_tasks

    if protocol not in ("k-means", "paper"):
        raise typer.BadParameter("choose k-means or paper.", param_hint="--protocol")
    if any("=" not in pair for pair in criterion):
        raise typer.BadParameter("give column=question.", param_hint="--criterion")
    criteria = dict(pair.split("=", 1) for pair in criterion)
    tasks = build_tasks(Data(data, hub, criteria, text_column, limit, protocol, instructions), task)
    if data is not None and criteria and not text_column:
        say_columns(find_columns(str(data), None))
    models = models_of(model, baseline, compare)
    if protocol == "paper":
        model_options = {"truncation_side": "left"} | model_options
    embedders = [embedder for name in models for embedder in inbedder_embedders(name, **model_options)]
    embedders += [embedder for name in baseline for embedder in mteb_embedders(name)]

    def report(cell: Any) -> None:
        if not sys.stderr.isatty():  # a progress bar is shown there instead
            say(f"{cell.task} · {cell.model} · {cell.vectors} {cell.seed}")

    items = output.with_suffix(".items")
    of_seeds = range(1 if protocol == "paper" else seeds)
    cells = run(embedders, tasks, output, of_seeds, report, items, need_items=compare is not None)
    if mteb_results is not None:
        from inbedder_evaluation.mteb_results import save_as_mteb

        save_as_mteb(cells, tasks, mteb_results)
    _show(cells, against_the_paper=hub)
    say(f"Written: {output}, and the items behind the scores: {items}")
    if compare is not None:
        _compare(cells, compare, items, output.with_suffix(".comparison.json"))


def models_of(models: Sequence[str], baselines: Sequence[str], compare: tuple[str, str] | None) -> list[str]:
    """What is measured as --model: what is asked for, and what --compare names beside it.

    Args:
        models: What --model names.
        baselines: What --baseline names.
        compare: What --compare names: models, or a model and how it is read behind a comma ("mini, no instruction").

    Returns:
        The models, each once; mini where nothing is named.
    """
    compared = [name.split(", ")[0] for name in compare or ()]
    named = [*models, *(name for name in compared if name not in baselines)]
    return list(dict.fromkeys(named)) or ([] if compare else ["mini"])


def _compare(cells: Sequence[Any], names: tuple[str, str], items: Path, output: Path) -> None:
    """Print and write how two models differ."""
    from inbedder_evaluation.paired_bootstrap import compare, comparison_table, find_model, save_comparison
    from inbedder_evaluation.results import aligned
    from inbedder_evaluation.runner import command

    measured = list(dict.fromkeys(cell.model for cell in cells))
    first, second = (find_model(name, measured) for name in names)
    found = compare(cells, first, second, items)
    typer.echo(f"\ncompared item by item\n{aligned(comparison_table(found, first, second))}")
    save_comparison(found, first, second, command(), output)
    say(f"Written: {output}")


def _show(cells: Sequence[Any], *, against_the_paper: bool) -> None:
    """Print tables of what was measured, and of how it compares with the published numbers."""
    from inbedder_evaluation.paper_numbers import expected_and_found
    from inbedder_evaluation.results import aligned, table

    for kind in ("raw", "centred"):
        rows = table(cells, kind)
        if len(rows) > 1:  # an encoder of pairs has no vectors to centre
            typer.echo(f"\n{kind} vectors\n{aligned(rows)}")
    if against_the_paper and (rows := expected_and_found(cells)):
        typer.echo(f"\nexpected (the paper's numbers) and found\n{aligned(rows)}")
