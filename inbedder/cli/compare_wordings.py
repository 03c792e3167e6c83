"""``inbedder compare-wordings``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import load_embedder, read_texts
from inbedder.cli.model_options import model_options
from inbedder.cli.shared_options import (
    CONTROLS,
    BatchSize,
    Delimiter,
    GuardCells,
    Input,
    Model,
    SkipBad,
    TextColumn,
    check_output,
    group_count,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbedder.grouping.wording_agreement import WordingComparison

MOVING_SHOWN, TEXT_SHOWN = 10, 60
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx")


@model_options
def compare_wordings(
    source: Input,
    instructions: Annotated[
        list[str], typer.Option("-i", "--instruction", help="The question in one wording; give it at least twice.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A table (.csv .tsv .json .jsonl .parquet .xlsx): the group of each text under each wording.",
        ),
    ] = None,
    k: Annotated[str, typer.Option("-k", help="Number of groups, or auto: what suits the mean over the wordings.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of k-means.")] = 0,
    model: Model = "mini",
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    guard_cells: GuardCells = True,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Group the texts by the same question in several wordings: how far they agree, which rows move, which wording to take."""
    if output is not None:
        check_output(output, TABLES, source)
    count = group_count(k)
    if len(set(instructions)) < max(2, len(instructions)):
        raise typer.BadParameter("give the question in at least two different wordings.", param_hint="-i")
    table = read_texts(source, text_column, skip_bad, delimiter)
    embedder = load_embedder(model, **model_options)
    from inbedder.grouping.wording_agreement import compare_wordings as compare

    found = compare(table.texts, instructions, embedder, count, seed, batch_size=batch_size)
    for line in _report(found, table.rows):
        typer.echo(line.translate(CONTROLS))
    if output is not None:
        from inbedder.io.outputs import write_records

        moving = [{name: value for name, value in row.items() if name not in ("row", "text")} for row in found.rows()]
        columns = {name: [row[name] for row in moving] for name in moving[0]}
        write_records(table.with_columns(columns), output, guard_cells=guard_cells)
        say(f"Written: {output}")


def _report(found: WordingComparison, numbers: Sequence[int]) -> list[str]:
    """Agreement, the best wording, and the rows that move most."""
    count, means = len(found.wordings), found.mean_agreement
    lines = [f"Adjusted Rand index of the groupings, {len(found.result.sizes)} groups each (1: the same, about 0: unrelated)"]
    lines.append("".join(f"{number:6d}" for number in range(1, count + 1)) + "  mean  wording")
    for number, wording in enumerate(found.wordings):
        cells = "".join(f"{index:6.2f}" for index in found.agreement[number])
        lines.append(f"{cells}{means[number]:6.2f}  {number + 1}. {wording}")
    lines.append(f"Wording {found.best + 1} agrees most with the others. Its groups:")
    pairs = zip(found.result.names, found.result.sizes, strict=True)
    lines += [f"{size:6d}  {name}" for name, size in pairs]
    moves = found.moves
    moving = (moves > 0).nonzero()[0]
    share = len(moving) / len(moves)
    lines.append(f"{len(moving)} of {len(moves)} rows ({share:.0%}) are in another group under some other wording.")
    names = found.result.names
    for row in sorted(moving.tolist(), key=lambda row: -moves[row])[:MOVING_SHOWN]:
        text = " ".join(found.result.texts[row].split())
        others = dict.fromkeys(names[label] for label in found.labels[:, row].tolist() if label != found.labels[found.best, row])
        home, shown = names[found.labels[found.best, row]], text[:TEXT_SHOWN] + "…" * (len(text) > TEXT_SHOWN)
        lines.append(f"  row {numbers[row]}, {moves[row]} of {count - 1}: {home} -> {' | '.join(others)}: {shown}")
    return lines
