"""``inbedder embed`` and ``inbedder answer``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.inputs import embed_stream, guided_vectors, load_embedder, read_texts, stream_texts
from inbedder.cli.options import (
    CONTROLS,
    AddGeneric,
    Address,
    Backbone,
    BatchSize,
    Beside,
    Cache,
    CacheSize,
    Delimiter,
    Device,
    Dtype,
    Engine,
    GuardCells,
    Guided,
    IdColumn,
    Input,
    Instruction,
    Layer,
    MaxLength,
    MaxNewTokens,
    Model,
    Normalize,
    Number,
    Pooling,
    Quantization,
    ReEncoder,
    Seed,
    SkipBad,
    Subtract,
    Temperature,
    Template,
    TextColumn,
    Threads,
    TopP,
    TruncationSide,
    VectorsOutput,
    Workers,
    check_folder,
    check_output,
    reencoding_of,
    say,
    say_columns,
)

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.outputs import VectorWriter
    from inbedder.tables import TextStream


def embed(
    source: Input,
    instruction: Instruction = None,
    output: VectorsOutput = Path("vectors.npy"),
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
    n: Number = 10,
    temperature: Temperature = 0.8,
    top_p: TopP = 0.9,
    seed: Seed = 0,
    re_encoder: ReEncoder = "all-MiniLM-L6-v2",
    max_new_tokens: MaxNewTokens = None,
    subtract_instruction: Subtract = None,
    add_generic: AddGeneric = None,
    beside: Beside = None,
    normalize: Normalize = False,
    engine: Engine = "local",
    workers: Workers = 1,
    threads: Threads = None,
    address: Address = None,
    id_column: IdColumn = None,
) -> None:
    """Write the vector of each text under an instruction: float32, one row per text."""
    reencoding = reencoding_of(pooling, n, temperature, top_p, seed, re_encoder)
    how = dict[str, Any](pooling=pooling, layer=layer, template=template, max_length=max_length, cache=cache, backbone=backbone)
    how |= dict(quantization=quantization, device=device, subtract_instruction=subtract_instruction, add_generic=add_generic)
    how |= dict(truncation_side=truncation_side, max_new_tokens=max_new_tokens, cache_size=cache_size, dtype=dtype, beside=beside)
    if engine == "ray":
        options = dict[str, Any](text_column=text_column, id_column=id_column, batch_size=batch_size, delimiter=delimiter)
        where = {"workers": workers, "threads": threads, "address": address}
        how |= {"reencoding": reencoding if pooling == "re-enc" else None, "normalize_embeddings": normalize}
        _embed_with_ray(source, output, instruction, guided, where, model=model, **options, **how)
        return
    _only_with_ray(engine, workers=workers > 1, threads=threads, address=address, id_column=id_column)
    check_output(output, (".npy", ".parquet"), source)
    with stream_texts(source, text_column, skip_bad, delimiter) as texts:
        embedder = load_embedder(model, **how)
        embedder.reencoding = reencoding
        from inbedder.outputs import vector_writer

        with vector_writer(output, texts.count) as writer:
            if guided is None:
                width = embed_stream(embedder, texts, instruction, writer, batch_size, normalize)
            else:
                width = _embed_guided(embedder, texts, instruction, writer, batch_size, normalize, guided)
    say(f"{output}: {texts.count} vectors of {width} numbers.")


def _embed_guided(
    embedder: InBedder,
    texts: TextStream,
    instruction: str | None,
    writer: VectorWriter,
    batch_size: int,
    normalize: bool,
    sample: int,
) -> int:
    """All at once: the map from generic vectors needs them."""
    from inbedder.scheduling import finished

    rows, strings = (list(column) for column in zip(*texts, strict=True))
    vectors = finished(guided_vectors(embedder, strings, [instruction], sample, batch_size)[0], normalize)
    writer.add(rows, strings, vectors)
    return int(vectors.shape[1])


def _embed_with_ray(
    source: str, output: Path, instruction: str | None, guided: int | None, where: dict[str, Any], **options: Any
) -> None:
    columns = options["text_column"] or [None]
    if len(columns) > 1 or options.pop("delimiter") is not None:
        message = (
            "with --engine ray the texts are in one column, and delimiters are found. Leave these out, or leave out --engine."
        )
        raise typer.BadParameter(message, param_hint="--text-column, --delimiter")
    options["text_column"] = columns[0]
    if guided is not None:
        raise typer.BadParameter("--guided needs all texts at once; leave it out with --engine ray.", param_hint="--guided")
    check_folder(output, source)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.distributed.job import Machines, embed_job, summary_of

    result = embed_job(source, output, instruction, machines=Machines(**where), **options)
    if options["text_column"] is None:
        say_columns(result.text_columns)
    say(summary_of(result))
    if not result.embedded:
        raise typer.Exit(1)


def _only_with_ray(engine: str, **given: Any) -> None:
    if engine != "local":
        raise typer.BadParameter("choose local or ray.", param_hint="--engine")
    for name, value in given.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is for --engine ray.", param_hint=option)


def answer(
    source: Input,
    instruction: Instruction = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .csv, .tsv, .jsonl, .json, .parquet or .xlsx file; without it, lines on stdout."),
    ] = None,
    n: Number = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = None,
    model: Model = "mini",
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
    guard_cells: GuardCells = True,
) -> None:
    """Answer the instruction for each text: one line per text, several answers set apart by tabs."""
    if output is not None:
        check_output(output, (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx"), source)
    table = read_texts(source, text_column, skip_bad, delimiter)
    how: dict[str, Any] = {"template": template, "max_length": max_length, "max_new_tokens": max_new_tokens, "cache": cache}
    how["truncation_side"] = truncation_side
    how |= {"quantization": quantization, "backbone": backbone, "dtype": dtype, "device": device, "cache_size": cache_size}
    embedder = load_embedder(model, **how)
    from inbedder.legibility import warn_of_unreadable

    warn_of_unreadable(table.texts, embedder)
    found = embedder.answer(table.texts, instruction, n=n, temperature=temperature, top_p=top_p, seed=seed, batch_size=batch_size)
    answers = [[answer] if isinstance(answer, str) else answer for answer in found]
    if output is None:
        for row_answers in answers:
            typer.echo("\t".join(" ".join(text.split()) for text in row_answers).translate(CONTROLS))
        return
    from inbedder.outputs import write_answers

    write_answers(output, answers, table.rows, table.texts, guard_cells=guard_cells)
    say(f"{output}: answers to {len(answers)} texts.")
