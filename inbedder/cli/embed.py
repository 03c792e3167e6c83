"""The commands ``inbedder embed`` and ``inbedder answer``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import TableOptions, embed_guided, embed_stream, load_embedder
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import (
    TABLE_TYPES,
    Address,
    BatchSize,
    Engine,
    GuardCells,
    Guided,
    IdColumn,
    Input,
    Instruction,
    Model,
    Number,
    Seed,
    Temperature,
    Threads,
    TopP,
    VectorsOutput,
    Workers,
    check_folder,
    check_output,
    print_message,
    print_result,
    print_text_columns,
)
from inbedder.errors import format_count

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.io.outputs import VectorWriter
    from inbedder.io.tables import TextStream


@with_model_options
def embed(
    source: Input,
    instruction: Instruction = None,
    output: VectorsOutput = Path("vectors.npy"),
    table_options: TableOptions = TableOptions(),
    model: Model = "mini",
    batch_size: BatchSize = 32,
    guided: Guided = None,
    engine: Engine = "local",
    workers: Workers = 1,
    threads: Threads = None,
    address: Address = None,
    id_column: IdColumn = None,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Embed each text under an instruction."""
    if engine == "ray":
        machines = {"workers": workers, "threads": threads, "address": address}
        options = dict[str, Any](model=model, id_column=id_column, batch_size=batch_size, **model_options)
        _embed_with_ray(source, table_options, output, instruction, guided, machines, options)
        return
    _check_ray_options(engine, workers=workers > 1, threads=threads, address=address, id_column=id_column)
    check_output(output, (".npy", ".parquet"), source)
    with table_options.stream(source) as texts:
        embedder = load_embedder(model, **model_options)
        from inbedder.io.outputs import open_vector_writer

        with open_vector_writer(output, texts.count) as writer:
            if guided is None:
                width = embed_stream(embedder, texts, instruction, writer, batch_size)
            else:
                width = _embed_guided(embedder, texts, instruction, writer, batch_size, guided)
    print_message(f"{output}: {format_count(texts.count, 'vector')} of {width} dimensions.")


def _embed_guided(
    embedder: InBedder,
    texts: TextStream,
    instruction: str | None,
    writer: VectorWriter,
    batch_size: int,
    sample: int,
) -> int:
    """Embed all texts at once, which the map from generic vectors needs, and write the vectors."""
    rows, strings = (list(column) for column in zip(*texts, strict=True))
    vectors = embed_guided(embedder, strings, [instruction], sample, batch_size)[0]
    writer.add(rows, strings, vectors)
    return int(vectors.shape[1])


def _embed_with_ray(
    source: str,
    table_options: TableOptions,
    output: Path,
    instruction: str | None,
    guided: int | None,
    machines: dict[str, Any],
    options: dict[str, Any],
) -> None:
    columns: Sequence[str | None] = table_options.text_column or [None]
    if len(columns) > 1 or table_options.delimiter is not None or table_options.traces is not None:
        message = "--engine ray reads tables with one text column and detects delimiters; leave out these options, or --engine."
        raise typer.BadParameter(message, param_hint="--text-column, --delimiter, --traces")
    if guided is not None:
        raise typer.BadParameter("it needs all texts at once; leave it out with --engine ray.", param_hint="--guided")
    check_folder(output, source)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.distributed.job import Machines, embed_job, summarize_job

    result = embed_job(source, output, instruction, text_column=columns[0], machines=Machines(**machines), **options)
    if columns[0] is None:
        print_text_columns(result.text_columns)
    print_message(summarize_job(result))
    if not result.embedded:
        raise typer.Exit(1)


def _check_ray_options(engine: str, **values: Any) -> None:
    """Reject options of Ray jobs with another engine."""
    if engine != "local":
        raise typer.BadParameter("choose local or ray.", param_hint="--engine")
    for name, value in values.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("it needs --engine ray.", param_hint=option)


@with_model_options
def answer(
    source: Input,
    instruction: Instruction = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Your table with the answers (.csv .tsv .jsonl .json .parquet .xlsx); default: lines on stdout.",
        ),
    ] = None,
    table_options: TableOptions = TableOptions(),
    model: Model = "mini",
    n: Number = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="One row per distinct answer, the most frequent first: answer, count, first text.")
    ] = False,
    guard_cells: GuardCells = True,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Answer a question about each text."""
    check_output(output, TABLE_TYPES, source)
    if instruction is None:
        raise typer.BadParameter('give the question to answer, or "@generic".', param_hint="-i")
    if distinct and n > 1:
        raise typer.BadParameter("it counts one answer per text; leave out -n.", param_hint="--distinct")
    table = table_options.read(source)
    embedder = load_embedder(model, **model_options)
    sampling: dict[str, Any] = {"n": n, "temperature": temperature, "top_p": top_p, "seed": seed}
    replies = embedder.answer(table.texts, instruction, batch_size=batch_size, **sampling)
    answers = [[reply] if isinstance(reply, str) else reply for reply in replies]
    if distinct:
        _write_distinct_answers([text for (text,) in answers], table.texts, output, guard_cells)
        return
    if output is None:
        for row_answers in answers:
            print_result("\t".join(" ".join(text.split()) for text in row_answers))
        return
    from inbedder.io.outputs import write_records

    names = ["answer"] if n == 1 else [f"answer_{number + 1}" for number in range(n)]
    columns = dict(zip(names, zip(*answers, strict=True), strict=True))
    write_records(table.with_columns(columns), output, guard_cells=guard_cells)
    print_message(f"{output}: answers to {format_count(len(answers), 'text')}.")


def _write_distinct_answers(answers: Sequence[str], texts: Sequence[str], output: Path | None, guard_cells: bool) -> None:
    """Write or print one row per distinct answer, ignoring case and blanks: its first spelling, its count and its first text."""
    rows: dict[str, dict[str, Any]] = {}
    for answer, text in zip(answers, texts, strict=True):
        row = rows.setdefault(" ".join(answer.casefold().split()), {"answer": answer, "count": 0, "text": text})
        row["count"] += 1
    records = sorted(rows.values(), key=lambda row: -row["count"])
    if output is None:
        for row in records:
            print_result("\t".join(" ".join(str(value).split()) for value in row.values()))
        return
    from inbedder.io.outputs import write_records

    write_records(records, output, guard_cells=guard_cells)
    print_message(f"{output}: {format_count(len(records), 'distinct answer')} to {format_count(len(texts), 'text')}.")
