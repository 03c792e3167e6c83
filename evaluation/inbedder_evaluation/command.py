"""The command ``inbedder evaluate``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.commands import make_app
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import (
    TextColumn,
    check_output,
    print_message,
    print_result,
    print_text_columns,
)
from inbedder.cli.timing_option import with_timings
from inbedder.runtime.timings import time_stage

DataPath = Annotated[Path | None, typer.Option(help="Table with two label columns or of C-STS, or a folder of known sets.")]
Instructions = Annotated[
    Path | None, typer.Option(help="JSON file of the authors' instructions for their robustness sets (with --hub).")
]
Baselines = Annotated[list[str], typer.Option(help="Model of mteb or sentence-transformers to compare with; repeatable.")]
ComparedModels = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="A B", help="Two models to compare item by item: difference, 95% interval, p-value."),
]
ResultsPath = Annotated[Path, typer.Option("-o", "--output", help="A .json file; a rerun keeps its finished cells.")]
Table = Annotated[
    str | None,
    typer.Option(
        help="dev or test: measure the sets of a table under three wordings of each question. Defaults: --limit 1000 --seeds 3."
    ),
]
Predictions = Annotated[
    Path | None,
    typer.Option(
        help="Only write the similarity of each row of a C-STS table, whose ratings may be hidden, in its authors' submission "
        "format: a .json file for one --model or --bi-encoder."
    ),
]
BiEncoders = Annotated[
    list[str],
    typer.Option(
        help="Base of an untrained bi-encoder, which reads sentence and condition as a pair of texts at [CLS] (C-STS's zero-shot "
        "baseline); repeatable."
    ),
]
Hub = Annotated[bool, typer.Option("--hub", help="Add the papers' own sets from the hub at pinned revisions.")]
Protocol = Annotated[
    str,
    typer.Option(
        help="k-means, or paper (mini-batch k-means, one seed, prompts cut at their start).",
        callback=lambda value: _check_protocol(value),
    ),
]


def _check_protocol(name: str) -> str:
    from inbedder_evaluation.evaluation_protocol import PROTOCOLS

    if name not in PROTOCOLS:
        raise typer.BadParameter(f"choose {' or '.join(PROTOCOLS)}.", param_hint="--protocol")
    return name


@with_timings
@with_model_options
def evaluate(
    model: Annotated[list[str], typer.Option(help="a bundled model, a hub id or a folder; repeatable. Default: mini.")] = [],  # noqa: B006
    baseline: Baselines = [],  # noqa: B006
    bi_encoder: BiEncoders = [],  # noqa: B006
    compare: ComparedModels = None,
    task: Annotated[list[str], typer.Option(help="Run only tasks whose name contains this; repeatable.")] = [],  # noqa: B006
    data: DataPath = None,
    hub: Hub = False,
    instructions: Instructions = None,
    criterion: Annotated[list[str], typer.Option(help="column=question for a table; give it twice.")] = [],  # noqa: B006
    output: ResultsPath = Path("results.json"),
    table: Table = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of k-means seeds. Default: 10.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(min=10, help="Maximum number of rows of the table or of each known set.")] = None,
    protocol: Protocol = "k-means",
    wording: Annotated[
        str | None, typer.Option(help="Ask text evaluation in the words of INSTRUCTOR's base, large or xl.", show_default=False)
    ] = None,
    predict: Predictions = None,
    mteb_results: Annotated[Path | None, typer.Option(help="Folder for the standard tasks' results in mteb's format.")] = None,
    text_column: TextColumn = None,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Evaluate how models follow instructions."""
    check_output(output, (".json",), None if data is None else str(data))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if table is not None:
        _check_options_of_table(
            [hub, instructions, criterion, compare, bi_encoder, predict, mteb_results, wording, protocol != "k-means"]
        )
        models = collect_models(model, baseline, None)
        load_embedders = partial(_load_embedders, models, baseline, [], model_options)
        _measure_table(table, data, limit, task, load_embedders, output, seeds)
        return
    from inbedder.io.tables import find_columns
    from inbedder_evaluation.evaluation_protocol import PROTOCOLS, add_protocol_options
    from inbedder_evaluation.runner import SEEDS, run
    from inbedder_evaluation.tasks import Data, build_tasks

    if any("=" not in pair for pair in criterion):
        raise typer.BadParameter("give column=question.", param_hint="--criterion")
    criteria = dict(pair.split("=", 1) for pair in criterion)
    sources = Data(data, hub, criteria, text_column, limit, protocol, instructions, predict is not None, wording)
    tasks = build_tasks(sources, task)
    if data is not None and criteria and not text_column:
        print_text_columns(find_columns(str(data), None))
    models = collect_models(model, baseline, compare, bi_encoder)
    _check_predictions(predict, data, [*models, *baseline, *bi_encoder])
    embedders = _load_embedders(models, baseline, bi_encoder, add_protocol_options(model_options, protocol))
    if predict is not None:
        from inbedder_evaluation.predictions import predict_similarities

        print_message(predict_similarities(embedders, tasks, predict))
        return

    items = output.with_suffix(".items")
    seed_range = range(PROTOCOLS[protocol].seeds or seeds or len(SEEDS))
    with time_stage("tasks"):
        cells = run(embedders, tasks, output, seed_range, _report_cell, items, need_items=compare is not None)
    if mteb_results is not None:
        from inbedder_evaluation.mteb.results import save_as_mteb

        save_as_mteb(cells, tasks, mteb_results)
    _print_results(cells, against_the_paper=hub)
    print_message(f"Written: {output}; scores per item: {items}")
    if compare is not None:
        _compare_models(cells, compare, items, output.with_suffix(".comparison.json"))


def _check_options_of_table(values: Sequence[Any]) -> None:
    if any(values):
        options = "--model, --baseline, --data, --limit, --seeds, --task and --output"
        raise typer.BadParameter(f"takes only options of models and {options}.", param_hint="--table")


def _load_embedders(
    models: Sequence[str], baselines: Sequence[str], bi_encoders: Sequence[str], model_options: Mapping[str, Any]
) -> list[Any]:
    from inbedder_evaluation.embedders import make_bi_encoder_embedders, make_embedders, make_mteb_embedders

    with time_stage("loading"):
        embedders = [embedder for name in models for embedder in make_embedders(name, **model_options)]
        embedders += [embedder for name in baselines for embedder in make_mteb_embedders(name)]
        return embedders + [embedder for name in bi_encoders for embedder in make_bi_encoder_embedders(name)]


def _measure_table(
    table: str,
    data: Path | None,
    limit: int | None,
    names: Sequence[str],
    load_embedders: Callable[[], list[Any]],
    output: Path,
    seeds: int | None,
) -> None:
    """Measure models on a table of scores and print it."""
    from inbedder_evaluation.results import format_aligned
    from inbedder_evaluation.score_tables import DEFAULT_ROWS, DEFAULT_SEEDS, build_table, make_score_table, measure_table

    started = time.monotonic()
    tasks = build_table(table, data, limit or DEFAULT_ROWS, names)
    with time_stage("tasks"):
        cells = measure_table(load_embedders(), tasks, output, range(seeds or DEFAULT_SEEDS), _report_cell)
    print_result(format_aligned(make_score_table(cells, tasks)))
    print_message(f"Written: {output}; {time.monotonic() - started:.0f} seconds")


def _report_cell(cell: Any) -> None:
    if not sys.stderr.isatty():  # a terminal shows a progress bar instead
        print_message(f"{cell.task} · {cell.model} · {cell.vectors} {cell.seed}")


def _check_predictions(output: Path | None, data: Path | None, models: Sequence[str]) -> None:
    if output is None:
        return
    if len(models) > 1:
        raise typer.BadParameter(f"give one --model or --bi-encoder, not {', '.join(models)}.", param_hint="--predict")
    check_output(output, (".json",), None if data is None else str(data))


def collect_models(
    models: Sequence[str], baselines: Sequence[str], compare: tuple[str, str] | None, bi_encoders: Sequence[str] = ()
) -> list[str]:
    """Collect the models to evaluate.

    Args:
        models: Names from ``--model``.
        baselines: Names from ``--baseline``.
        compare: Names from ``--compare``: a model, or a model and its variant after a comma ("mini, no instruction").
        bi_encoders: Names from ``--bi-encoder``.

    Returns:
        Distinct names of models that are neither; mini if there is no name of a model or bi-encoder.
    """
    compared_names = [name.split(", ")[0] for name in compare or ()]
    names = [*models, *(name for name in compared_names if name not in baselines)]
    return list(dict.fromkeys(names)) or ([] if compare or bi_encoders else ["mini"])


def _compare_models(cells: Sequence[Any], names: tuple[str, str], items: Path, output: Path) -> None:
    """Compare two models item by item; print and write the result."""
    from inbedder_evaluation.paired_bootstrap import compare, find_model, make_comparison_table, save_comparison
    from inbedder_evaluation.results import format_aligned
    from inbedder_evaluation.runner import format_command

    model_names = list(dict.fromkeys(cell.model for cell in cells))
    first, second = (find_model(name, model_names) for name in names)
    comparison = compare(cells, first, second, items)
    print_result(f"\ncompared item by item\n{format_aligned(make_comparison_table(comparison, first, second))}")
    save_comparison(comparison, first, second, format_command(), output)
    print_message(f"Written: {output}")


def _print_results(cells: Sequence[Any], *, against_the_paper: bool) -> None:
    """Print the results, and their comparison with the published numbers."""
    from inbedder_evaluation.paper_numbers import compare_with_published
    from inbedder_evaluation.results import format_aligned, make_table

    for kind in ("raw", "centred"):
        rows = make_table(cells, kind)
        if len(rows) > 1:  # a pair encoder has no vectors to centre
            print_result(f"\n{kind} vectors\n{format_aligned(rows)}")
    if against_the_paper and (rows := compare_with_published(cells)):
        print_result(f"\nexpected (the paper's numbers) and found\n{format_aligned(rows)}")


app = make_app(evaluate, "inbedder evaluate --model mini -o results.json")
