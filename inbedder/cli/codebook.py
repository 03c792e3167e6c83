"""The command ``inbedder codebook``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.deferred_errors import DeferredErrors
from inbedder.cli.inputs import TableOptions, load_embedder
from inbedder.cli.model_options import with_cluster_options, with_model_options
from inbedder.cli.shared_options import (
    TABLE_TYPES,
    BatchSize,
    GuardCells,
    Input,
    Instruction,
    ModelOfCodebook,
    check_outputs,
    parse_group_count,
    print_message,
    print_stage,
)
from inbedder.errors import format_count

if TYPE_CHECKING:
    from inbedder.classification.codebook import Codebook

CODEBOOK_TYPES = (".yaml", ".yml")
"""Extensions of codebooks."""
Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o",
        "--output",
        help="The codebook (.yaml), or a table of it (.csv .tsv .jsonl .json .parquet .xlsx) for classify --into; repeatable.",
    ),
]
Update = Annotated[
    Path | None,
    typer.Option(help="An earlier codebook: count its codes in the new texts, and add codes for texts that fit none."),
]


@with_model_options
@with_cluster_options
def codebook(
    source: Input,
    instruction: Instruction = None,
    output: Outputs = [Path("codes.yaml")],  # noqa: B006 - typer copies defaults
    update: Update = None,
    k: Annotated[str, typer.Option("-k", help="Number of codes, or auto.")] = "auto",
    table_options: TableOptions = TableOptions(),
    model: ModelOfCodebook = None,
    guard_cells: GuardCells = True,
    batch_size: BatchSize = 32,
    cluster_options: dict[str, Any] = {},  # noqa: B006 - a decorator fills it
    model_options: dict[str, Any] = {},  # noqa: B006
) -> None:
    """Make or update a codebook of answers."""
    check_outputs(output, (*CODEBOOK_TYPES, *TABLE_TYPES), source)
    count = parse_group_count(k)
    _check_arguments(instruction, update, output, is_grouping=count != "auto" or bool(cluster_options))
    table = table_options.read(source)
    from inbedder.classification.codebook import Codebook

    if update is None:
        new_codebook = _make_codebook(table.texts, str(instruction), count, model, batch_size, cluster_options, model_options)
    else:
        old_codebook = Codebook.load(update)
        embedder = load_embedder(model or old_codebook.model, **model_options)
        new_codebook = old_codebook.update(table.texts, embedder, batch_size=batch_size)
        _print_update(new_codebook)
    failures = DeferredErrors()
    for path in output:
        with failures.collect(path):
            if path.suffix.lower() in CODEBOOK_TYPES:
                new_codebook.save(path)
                print_message(f"Written: {path}. Edit it, then: inbedder classify TABLE --codebook {path}")
            else:
                from inbedder.io.outputs import write_records

                write_records(new_codebook.rows(), path, guard_cells=guard_cells)
                print_message(f"Written: {path}")
    failures.raise_all()


def _check_arguments(instruction: str | None, update: Path | None, output: list[Path], *, is_grouping: bool) -> None:
    """Check that the arguments go together, and that no codebook with edits would be lost."""
    if update is None and instruction is None:
        raise typer.BadParameter("give the question that the codes answer, or an earlier codebook (--update).", param_hint="-i")
    if update is not None and instruction is not None:
        raise typer.BadParameter("the codebook has its question. Leave it out.", param_hint="-i")
    if update is not None and is_grouping:
        raise typer.BadParameter("an update keeps the codes. Leave out -k and other options of groups.", param_hint="--update")
    for path in output:
        if path.suffix.lower() in CODEBOOK_TYPES and path.exists():
            raise typer.BadParameter(
                f"{path} exists, perhaps with your edits. Choose another name, or delete it.", param_hint="-o"
            )


def _make_codebook(
    texts: list[str],
    instruction: str,
    count: int | str,
    model: str | None,
    batch_size: int,
    cluster_options: dict[str, Any],
    model_options: dict[str, Any],
) -> Codebook:
    """Group the texts, make the codebook of the groups and print it."""
    from inbedder.grouping.cluster_options import ClusterOptions

    ClusterOptions(**cluster_options, k=count).check_count(len(texts))  # before the model is loaded
    embedder = load_embedder(model or "mini", **model_options)
    from inbedder.classification.codebook import Codebook
    from inbedder.grouping.clustering import cluster

    print_stage(f"Reading {format_count(len(texts), 'text')} and grouping.")
    result = cluster(texts, instruction, embedder, count, batch_size=batch_size, **cluster_options)
    first_codebook = Codebook.of(result, embedder, batch_size=batch_size)
    print_message(str(first_codebook.question))
    print_message("  share  code")
    for code in first_codebook.codes:
        print_message(f"  {_format_share(code.share)}  {code.name}: {code.description}")
    print_message(f"  {_format_share(_measure_rest(first_codebook))}  (no code)")
    if result.choice is not None:
        print_message(f"  {result.choice}")
    return first_codebook


def _print_update(updated: Codebook) -> None:
    """Print the old and the new share of each code, and its state."""
    from inbedder.classification.codebook import MATCHED

    print_message(str(updated.question))
    print_message("    old     new  code")
    for code in updated.codes:
        state = "" if code.state == MATCHED else f" ({code.state})"
        print_message(f"  {_format_share(code.previous_share)}   {_format_share(code.share)}  {code.name}{state}")
    print_message(f"          {_format_share(_measure_rest(updated))}  (no code)")


def _format_share(share: float | None) -> str:
    return "    –" if share is None else f"{share:5.1%}"


def _measure_rest(codebook: Codebook) -> float:
    """Measure the share of the texts that have no code."""
    return max(0.0, 1 - sum(code.share or 0 for code in codebook.codes))
