"""The command ``inbedder compare-wordings``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import TableOptions, load_embedder
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import (
    TABLE_TYPES,
    BatchSize,
    GuardCells,
    Input,
    Model,
    check_instructions,
    check_output,
    parse_group_count,
    print_message,
    print_result,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbedder.grouping.questions.wording_agreement import WordingComparison

MAX_MOVING_ROWS, MAX_TEXT_CHARACTERS = 10, 60


@with_model_options
def compare_wordings(
    source: Input,
    instructions: Annotated[
        list[str],
        typer.Option(
            "-i",
            "--instruction",
            help="The question in one wording; give at least two wordings.",
            callback=check_instructions,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Your table with each row's groups (.csv .tsv .jsonl .json .parquet .xlsx)."),
    ] = None,
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto.")] = "auto",
    table_options: TableOptions = TableOptions(),
    model: Model = "mini",
    seed: Annotated[int, typer.Option(help="Seed of k-means.")] = 0,
    guard_cells: GuardCells = True,
    batch_size: BatchSize = 32,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Compare groups under several wordings."""
    check_output(output, TABLE_TYPES, source)
    count = parse_group_count(k)
    if len(set(instructions)) < max(2, len(instructions)):
        raise typer.BadParameter("give the question in at least two different wordings.", param_hint="-i")
    table = table_options.read(source)
    embedder = load_embedder(model, **model_options)
    from inbedder.grouping.questions.wording_agreement import compare_wordings as compare

    comparison = compare(table.texts, instructions, embedder, count, seed, batch_size=batch_size)
    for line in _format_report(comparison, table.rows):
        print_result(line)
    if output is not None:
        from inbedder.io.outputs import write_records

        records = [{name: value for name, value in row.items() if name not in ("row", "text")} for row in comparison.rows()]
        columns = {name: [record[name] for record in records] for name in records[0]}
        write_records(table.with_columns(columns), output, guard_cells=guard_cells)
        print_message(f"Written: {output}")


def _format_report(comparison: WordingComparison, numbers: Sequence[int]) -> list[str]:
    """Format the agreement of the wordings, the groups of the best one, and the rows that move most."""
    count, means = len(comparison.wordings), comparison.mean_agreement
    lines = [f"Adjusted Rand index of the groupings, {len(comparison.result.sizes)} groups each (1: equal, about 0: unrelated)"]
    lines.append("".join(f"{number:6d}" for number in range(1, count + 1)) + "  mean  wording")
    for number, wording in enumerate(comparison.wordings):
        cells = "".join(f"{index:6.2f}" for index in comparison.agreement[number])
        lines.append(f"{cells}{means[number]:6.2f}  {number + 1}. {wording}")
    lines.append(f"Wording {comparison.best + 1} agrees most with the others. Its groups:")
    pairs = zip(comparison.result.names, comparison.result.sizes, strict=True)
    lines += [f"{size:6d}  {name}" for name, size in pairs]
    moves = comparison.moves
    moving_rows = (moves > 0).nonzero()[0]
    share = len(moving_rows) / len(moves)
    lines.append(f"{len(moving_rows)} of {len(moves)} rows ({share:.0%}) change their group under another wording.")
    names = comparison.result.names
    for row in sorted(moving_rows.tolist(), key=lambda row: -moves[row])[:MAX_MOVING_ROWS]:
        text = " ".join(comparison.result.texts[row].split())
        other_groups = dict.fromkeys(
            names[label] for label in comparison.labels[:, row].tolist() if label != comparison.labels[comparison.best, row]
        )
        best_group = names[comparison.labels[comparison.best, row]]
        excerpt = text[:MAX_TEXT_CHARACTERS] + "…" * (len(text) > MAX_TEXT_CHARACTERS)
        lines.append(f"  row {numbers[row]}, {moves[row]} of {count - 1}: {best_group} -> {' | '.join(other_groups)}: {excerpt}")
    return lines
