"""The command line. Heavy imports wait until a command needs them, so that --help is instant."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.options import Backbone, Guided, MaxNewTokens, Number, ReEncoder, Seed, Temperature, TopP, reencoding_of

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

Input = Annotated[
    str, typer.Argument(metavar="INPUT", help="A .csv, .tsv, .jsonl, .parquet or .txt file, or - for lines on stdin.")
]
Instruction = Annotated[
    str | None, typer.Option("-i", "--instruction", help="What to ask of each text; @topic and the like are named.")
]
Instructions = Annotated[list[str], typer.Option("-i", "--instruction", help="What to group by; give several to compare.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the texts; guessed where only one can be meant.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows instead of stopping at the first.")]
Model = Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder.")]
Pooling = Annotated[str | None, typer.Option(help="1st-gen, avg-gen, last-gen, avg-ppt, avg-all or re-enc.")]
Layer = Annotated[int, typer.Option(help="Layer of the hidden states; -1 is the last.")]
Template = Annotated[str | None, typer.Option(help="Prompt template: a name or a pattern.")]
MaxLength = Annotated[int, typer.Option(help="Longest prompt in tokens; longer texts are cut.")]
Quantization = Annotated[str | None, typer.Option(help="int8 or nf4 (bitsandbytes).")]
Precision = Annotated[str | None, typer.Option(help="float32, bfloat16, float16, or int8 (masked LMs on a CPU).")]
Device = Annotated[str | None, typer.Option(help="A torch device, such as cpu or cuda:1.")]
Cache = Annotated[Path | None, typer.Option(help="A folder that keeps vectors and answers for the next time.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Most texts in one pass.")]


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Text embeddings that follow an instruction, by answering it."""


def _load(model: str, **options: Any) -> InBedder:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from inbedder.embedder import InBedder

    embedder = InBedder(model, **options)
    _say(f"{model} computes in {embedder.precision} on {embedder.backbone.model.device}.")
    return embedder


def _read(source: str, text_column: str | None, skip_bad: bool) -> Table:
    from inbedder.tables import read_table

    table = read_table(source, text_column, skip_bad=skip_bad)
    if table.skipped:
        _say(f"{table.skipped} bad rows were left out.")
    return table


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _guided(embedder: InBedder, texts: list[str], instructions: Sequence[str | None], sample: int, batch_size: int) -> list[Any]:
    generic = embedder.encode(texts, batch_size=batch_size)
    found = []
    for one in instructions:
        vectors = embedder.encode_guided(texts, one, sample=sample, generic=generic, batch_size=batch_size)
        read = len(vectors.sample)
        mapped = f", the others mapped (cosine of mapped and read vectors {vectors.cosine:.2f})" if read < len(texts) else ""
        _say(f"{read} of {len(texts)} texts were read under {one or '@generic'!r}{mapped}.")
        found.append(vectors)
    return found


def _check_output(path: Path, allowed: tuple[str, ...]) -> None:
    if path.suffix.lower() not in allowed:
        raise typer.BadParameter(f"{path}: give a file that ends in {', '.join(allowed)}.", param_hint="-o")
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"{path}: its folder does not exist.", param_hint="-o")
    from inbedder.tables import check_writable

    check_writable(path)


@app.command()
def embed(
    source: Input,
    instruction: Instruction = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="A .npy or .parquet file.")] = Path("vectors.npy"),
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
    max_new_tokens: MaxNewTokens = 3,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")] = False,
) -> None:
    """Write the vector of each text under an instruction: float32, one row a text."""
    _check_output(output, (".npy", ".parquet"))
    table = _read(source, text_column, skip_bad)
    reencoding = reencoding_of(pooling, n, temperature, top_p, seed, re_encoder)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how |= {"quantization": quantization, "backbone": backbone, "dtype": precision, "device": device}
    embedder = _load(model, max_new_tokens=max_new_tokens, **how)
    embedder.reencoding = reencoding
    if guided is None:
        vectors = embedder.encode(table.texts, instruction, batch_size=batch_size, normalize_embeddings=normalize)
    else:
        from inbedder.running import finished

        vectors = finished(_guided(embedder, table.texts, [instruction], guided, batch_size)[0], normalize)
    from inbedder.tables import write_vectors

    write_vectors(output, vectors, table.rows, table.texts)
    _say(f"{output}: {vectors.shape[0]} vectors of {vectors.shape[1]} numbers.")


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
    max_new_tokens: MaxNewTokens = 3,
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
        _check_output(output, (".csv", ".tsv", ".jsonl", ".json", ".parquet"))
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
    _say(f"{output}: answers to {len(answers)} texts.")


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
) -> None:
    """Group the texts by each instruction, name the groups, and write a page that compares the groupings."""
    for path in output:
        _check_output(path, (".html", ".csv", ".tsv", ".json", ".jsonl", ".parquet"))
    if k != "auto" and not k.isdigit():
        raise typer.BadParameter("give a number or auto.", param_hint="-k")
    table = _read(source, text_column, skip_bad)
    given = None if label_column is None else table.column(label_column)
    how: dict[str, Any] = {"pooling": pooling, "layer": layer, "template": template, "max_length": max_length, "cache": cache}
    how |= {"quantization": quantization, "backbone": backbone, "dtype": precision, "device": device}
    embedder = _load(model, **how)
    from inbedder.clustering import cluster as cluster_texts

    found: Any = (
        embedder.encode_many(table.texts, instructions, batch_size=batch_size)
        if guided is None
        else _guided(embedder, table.texts, instructions, guided, batch_size)
    )
    options: dict[str, Any] = {"k": k if k == "auto" else int(k), "seed": seed, "given_labels": given, "batch_size": batch_size}
    results = [
        cluster_texts(table.texts, one, model=embedder, embeddings=vectors, **options)
        for one, vectors in zip(instructions, found, strict=True)
    ]
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
        _say(f"{result.instruction}")
        for name, size in zip(result.names, result.sizes, strict=True):
            _say(f"  {size:6d}  {name}")
    _say(f"Written: {', '.join(str(path) for path in output)}")


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
        _say(f"{folder}: removed.")
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
        _say(line)
    if wrong and not repair:
        raise typer.Exit(1)
    _say(f"{folder}: {'repaired' if wrong else 'every entry is whole'}.")


@app.command()
def finetune(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML recipe; finetune/recipes/ holds examples.")],
    changes: Annotated[list[str], typer.Option("--set", help="Change a setting: section.key=value. May repeat.")] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show prompts, targets and a table of the data; train nothing.")
    ] = False,
) -> None:
    """Fine-tune a language model to answer in a few content words, as a recipe says."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from finetune.recipe import read_recipe

    settings = read_recipe(recipe, changes)
    from finetune.answering import finetune as run
    from finetune.answering import preview

    if dry_run:
        typer.echo(preview(settings))
        return
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("finetune").setLevel(logging.INFO)
    folder = run(settings)
    _say(f"{folder}: done. Use it: inbedder embed INPUT -i '...' --model {folder}")


@app.command()
def evaluate(
    model: Annotated[list[str], typer.Option(help="mini, a hub id or a folder; may repeat.")] = ["mini"],  # noqa: B006
    baseline: Annotated[
        list[str], typer.Option(help="A model of mteb or sentence-transformers to compare with; may repeat.")
    ] = [],  # noqa: B006
    task: Annotated[list[str], typer.Option(help="Only tasks whose name contains this; may repeat.")] = [],  # noqa: B006
    data: Annotated[Path | None, typer.Option(help="A table with two label columns, or a folder of known sets.")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Add the papers' own sets from the hub, at pinned revisions.")] = False,
    criterion: Annotated[list[str], typer.Option(help="column=question, twice, for a table.")] = [],  # noqa: B006
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; finished cells in it are kept.")] = Path(
        "results.json"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of k-means.")] = 10,
    limit: Annotated[int | None, typer.Option(min=10, help="At most so many rows of each known set.")] = None,
    protocol: Annotated[str, typer.Option(help="k-means, or paper: mini-batch k-means, one seed.")] = "k-means",
    mteb_results: Annotated[Path | None, typer.Option(help="Folder for mteb's own result files of the standard tasks.")] = None,
    pooling: Pooling = None,
    layer: Layer = -1,
    text_column: TextColumn = None,
) -> None:
    """Measure instruction following: each model with its instruction and without, on the shipped sets or on your own table."""
    _check_output(output, (".json",))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from evaluation.embedders import inbedder_embedders, mteb_embedders
    from evaluation.results import aligned, table
    from evaluation.runner import run
    from evaluation.tasks import Data, build_tasks

    if protocol not in ("k-means", "paper"):
        raise typer.BadParameter("choose k-means or paper.", param_hint="--protocol")
    if any("=" not in one for one in criterion):
        raise typer.BadParameter("give column=question.", param_hint="--criterion")
    criteria = dict(one.split("=", 1) for one in criterion)
    tasks = build_tasks(Data(data, hub, criteria, text_column, limit, protocol), task)
    embedders = [one for name in model for one in inbedder_embedders(name, pooling=pooling, layer=layer)]
    embedders += [one for name in baseline for one in mteb_embedders(name)]
    quiet = sys.stderr.isatty()  # a progress bar is shown there instead

    def report(cell: Any) -> None:
        if not quiet:
            _say(f"{cell.task} · {cell.model} · {cell.vectors} {cell.seed}")

    cells = run(embedders, tasks, output, range(1 if protocol == "paper" else seeds), report)
    if mteb_results is not None:
        from evaluation.mteb_results import save_as_mteb

        save_as_mteb(cells, tasks, mteb_results)
    for kind in ("raw", "centred"):
        typer.echo(f"\n{kind} vectors")
        typer.echo(aligned(table(cells, kind)))
    _say(f"Written: {output}")


def main() -> None:
    """Run the command line: exit code 0 ok, 1 failed, 2 usage; tracebacks only with --debug."""
    from inbedder.errors import InbedderError

    warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
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
    _say(message)
    sys.exit(1)
