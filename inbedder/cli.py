"""The command line. Heavy imports wait until a command needs them, so that --help is instant."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder import commands, model_commands
from inbedder.options import (
    Address,
    Backbone,
    BatchSize,
    Cache,
    Device,
    Engine,
    Guided,
    IdColumn,
    Input,
    Instruction,
    Instructions,
    Layer,
    MaxLength,
    MaxNewTokens,
    Model,
    Normalize,
    Number,
    Pooling,
    Precision,
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
    VectorsOutput,
    Workers,
    check_output,
    reencoding_of,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbedder.clustering import ClusterResult
    from inbedder.embedder import InBedder
    from inbedder.tables import Table

INTERRUPTED = 130

app = typer.Typer(
    name="inbedder",
    help="Text embeddings that follow an instruction, by answering it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Text embeddings that follow an instruction, by answering it."""


def _load(model: str, **options: Any) -> InBedder:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.embedder import InBedder

    embedder = InBedder(model, **options)
    say(f"{model} computes in {embedder.precision} on {embedder.backbone.model.device}.")
    return embedder


def _read(source: str, text_column: str | None, skip_bad: bool) -> Table:
    from inbedder.tables import read_table

    table = read_table(source, text_column, skip_bad=skip_bad)
    if table.skipped:
        say(f"{table.skipped} bad rows were left out.")
    return table


def _guided(embedder: InBedder, texts: list[str], instructions: Sequence[str | None], sample: int, batch_size: int) -> list[Any]:
    generic = embedder.encode(texts, batch_size=batch_size)
    found = []
    for one in instructions:
        vectors = embedder.encode_guided(texts, one, sample=sample, generic=generic, batch_size=batch_size)
        read = len(vectors.sample)
        mapped = f", the others mapped (cosine of mapped and read vectors {vectors.cosine:.2f})" if read < len(texts) else ""
        say(f"{read} of {len(texts)} texts were read under {one or '@generic'!r}{mapped}.")
        found.append(vectors)
    return found


@app.command()
def embed(
    source: Input,
    instruction: Instruction = None,
    output: VectorsOutput = Path("vectors.npy"),
    model: Model = "mini",
    pooling: Pooling = None,
    layer: Layer = -1,
    template: Template = None,
    max_length: MaxLength = 512,
    quantization: Quantization = None,
    backbone: Backbone = None,
    precision: Precision = None,
    device: Device = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    cache: Cache = None,
    guided: Guided = None,
    n: Number = 10,
    temperature: Temperature = 0.8,
    top_p: TopP = 0.9,
    seed: Seed = 0,
    re_encoder: ReEncoder = "all-MiniLM-L6-v2",
    max_new_tokens: MaxNewTokens = None,
    subtract_instruction: Subtract = None,
    normalize: Normalize = False,
    engine: Engine = "local",
    workers: Workers = 1,
    threads: Threads = None,
    address: Address = None,
    id_column: IdColumn = None,
) -> None:
    """Write the vector of each text under an instruction: float32, one row a text."""
    reencoding = reencoding_of(pooling, n, temperature, top_p, seed, re_encoder)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how |= {"backbone": backbone, "quantization": quantization, "dtype": precision, "device": device}
    how |= {"max_new_tokens": max_new_tokens, "subtract_instruction": subtract_instruction}
    if engine == "ray":
        asked: dict[str, Any] = {"text_column": text_column, "id_column": id_column, "batch_size": batch_size}
        where = {"workers": workers, "threads": threads, "address": address}
        how |= {"reencoding": reencoding if pooling == "re-enc" else None, "normalize_embeddings": normalize}
        _embed_with_ray(source, output, instruction, guided, where, model=model, **asked, **how)
        return
    _only_with_ray(engine, workers=workers > 1, threads=threads, address=address, id_column=id_column)
    check_output(output, (".npy", ".parquet"))
    table = _read(source, text_column, skip_bad)
    embedder = _load(model, **how)
    embedder.reencoding = reencoding
    if guided is None:
        vectors = embedder.encode(table.texts, instruction, batch_size=batch_size, normalize_embeddings=normalize)
    else:
        from inbedder.running import finished

        vectors = finished(_guided(embedder, table.texts, [instruction], guided, batch_size)[0], normalize)
    from inbedder.tables import write_vectors

    write_vectors(output, vectors, table.rows, table.texts)
    say(f"{output}: {vectors.shape[0]} vectors of {vectors.shape[1]} numbers.")


def _embed_with_ray(
    source: str, output: Path, instruction: str | None, guided: int | None, where: dict[str, Any], **options: Any
) -> None:
    if guided is not None:
        raise typer.BadParameter("--guided needs all texts at once; leave it out with --engine ray.", param_hint="--guided")
    if output.suffix:
        raise typer.BadParameter(f"{output}: with --engine ray give a folder, such as vectors/.", param_hint="-o")
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"{output}: its folder does not exist.", param_hint="-o")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.distributed import Machines, embed_job, told

    result = embed_job(source, output, instruction, machines=Machines(**where), **options)
    say(told(result))
    if not result.embedded:
        raise typer.Exit(1)


def _only_with_ray(engine: str, **given: Any) -> None:
    if engine != "local":
        raise typer.BadParameter("choose local or ray.", param_hint="--engine")
    for name, value in given.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} is for --engine ray.", param_hint=option)


@app.command()
def answer(
    source: Input,
    instruction: Instruction = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .csv, .tsv, .jsonl, .json or .parquet file; without it, lines on stdout."),
    ] = None,
    n: Number = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    max_new_tokens: MaxNewTokens = None,
    model: Model = "mini",
    template: Template = None,
    max_length: MaxLength = 512,
    quantization: Quantization = None,
    backbone: Backbone = None,
    precision: Precision = None,
    device: Device = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    cache: Cache = None,
) -> None:
    """Answer the instruction for each text: one line a text, several answers set apart by tabs."""
    if output is not None:
        check_output(output, (".csv", ".tsv", ".jsonl", ".json", ".parquet"))
    table = _read(source, text_column, skip_bad)
    how: dict[str, Any] = {"template": template, "max_length": max_length, "max_new_tokens": max_new_tokens, "cache": cache}
    how |= {"quantization": quantization, "backbone": backbone, "dtype": precision, "device": device}
    embedder = _load(model, **how)
    said = embedder.answer(table.texts, instruction, n=n, temperature=temperature, top_p=top_p, seed=seed, batch_size=batch_size)
    answers = [[one] if isinstance(one, str) else one for one in said]
    if output is None:
        for one in answers:
            typer.echo("\t".join(" ".join(text.split()) for text in one))
        return
    from inbedder.tables import write_answers

    write_answers(output, answers, table.rows, table.texts)
    say(f"{output}: answers to {len(answers)} texts.")


@app.command()
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
    quantization: Quantization = None,
    backbone: Backbone = None,
    precision: Precision = None,
    device: Device = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    batch_size: BatchSize = 32,
    cache: Cache = None,
    guided: Guided = None,
    subtract_instruction: Subtract = None,
    titles: Annotated[bool, typer.Option("--titles", help="Let the model write a title per group (best with small).")] = False,
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    for path in output:
        check_output(path, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet"))
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    table = _read(source, text_column, skip_bad)
    given = None if label_column is None else table.column(label_column)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how |= {"quantization": quantization, "backbone": backbone, "dtype": precision, "device": device}
    how["subtract_instruction"] = subtract_instruction
    embedder = _load(model, **how)
    from inbedder.clustering import cluster as cluster_texts

    found: Any = (
        embedder.encode_many(table.texts, instructions, batch_size=batch_size)
        if guided is None
        else _guided(embedder, table.texts, instructions, guided, batch_size)
    )
    options: dict[str, Any] = {"k": k if k == "auto" else int(k), "seed": seed, "given_labels": given, "batch_size": batch_size}
    options["titles"] = titles
    results = [
        cluster_texts(table.texts, one, model=embedder, embeddings=vectors, **options)
        for one, vectors in zip(instructions, found, strict=True)
    ]
    if not embedder.backbone.answers:
        say(f"{model} does not answer, so the groups are named by the words of their texts.")
    _write_groups(results, table, output)


def _write_groups(results: Sequence[ClusterResult], table: Table, output: Sequence[Path]) -> None:
    for path in output:
        if path.suffix.lower() == ".html":
            from inbedder.report import save_report

            save_report(results, path)
        else:
            from inbedder.tables import write_records

            write_records((row for result in results for row in result.rows(table.rows)), path)
    for result in results:
        say(f"{result.instruction}")
        for name, size in zip(result.names, result.sizes, strict=True):
            say(f"  {size:6d}  {name}")
    say(f"Written: {', '.join(str(path) for path in output)}")


@app.command()
def cache(
    action: Annotated[str, typer.Argument(help="info (what is kept), verify (check every entry) or clear (remove it).")],
    folder: Annotated[Path, typer.Argument(help="A folder given to --cache.")],
    repair: Annotated[bool, typer.Option("--repair", help="With verify: drop damaged entries.")] = False,
) -> None:
    """Look at, check or remove kept vectors and answers."""
    from inbedder.store import FILE, Store

    if action not in ("info", "verify", "clear"):
        raise typer.BadParameter("choose info, verify or clear.", param_hint="ACTION")
    if not (folder / FILE).is_file():
        raise typer.BadParameter(f"{folder} holds no cache.", param_hint="FOLDER")
    if action == "clear":
        Store(folder).clear()
        say(f"{folder}: removed.")
        return
    store = Store(folder)
    if action == "info":
        for space in store.info():
            what = "answers" if "answers" in space else f"vectors, {space['pooling']}, layer {space['layer']}"
            typer.echo(
                f"{space['entries']:9,d} entries {space['bytes'] / 1e6:9.1f} MB  {space['model']} ({space['revision']}): {what}"
            )
        return
    wrong = store.verify(remove=repair)
    for line in wrong:
        say(line)
    if wrong and not repair:
        raise typer.Exit(1)
    say(f"{folder}: {'repaired' if wrong else 'every entry is whole'}.")


app.add_typer(model_commands.app, name="models")
app.command()(commands.finetune)
app.command()(commands.evaluate)


def main() -> None:
    """Run the command line: exit code 0 ok, 1 failed, 2 usage; tracebacks only with --debug."""
    from inbedder.errors import InbedderError

    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    try:
        app()
    except InbedderError as error:
        _fail(f"error: {error}")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            _fail("Interrupted; no half file was left.")
        raise
    except Exception as error:
        _fail(f"error: {type(error).__name__}: {error}\nThis was not expected; --debug in front of the command shows where.")


def _fail(message: str) -> None:
    if "--debug" in sys.argv:
        import traceback

        traceback.print_exc()
    say(message)
    sys.exit(1)
