"""C-STS experiments: trained encoders and ablations, models without training, and the curve over the number of pairs.

    python scripts/train/csts_experiments.py table -o runs/csts.json                     (C-STS paper, tables 2, 3 and 10)
    python scripts/train/csts_experiments.py curve -o runs/csts.json                     (figure 3)
    python scripts/train/csts_experiments.py curve -o runs/figure3.json --data FOLDER --paper-model simcse-large --size 500
    python scripts/train/csts_experiments.py table -o runs/csts.json            --data finetune/written/csts.csv
    python scripts/train/csts_experiments.py split csts_train_reannotated.csv.gz -o csts-real.csv
    python scripts/train/csts_experiments.py untrained -o finetune/results/csts_untrained.json --data csts-real.csv
    python scripts/train/csts_experiments.py real -o finetune/results/csts_real.json --data csts-real.csv

Without --data the shipped captions are used; FOLDER holds the authors' csts_train.csv and csts_validation.csv. Commands may
share a results file; finished cells in it are not computed again. Each model is evaluated on the test rows and the validation
rows, trained models with each seed. Tables show mean and standard deviation over the seeds. Weights are not kept.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import typer

from inbedder.errors import InbedderError, InputError
from inbedder.grouping.prepare.mean_wordings import average_wordings
from inbedder.io.outputs import write_records
from inbedder.io.tables import read_rows
from inbedder.models.bundled import BASE_NAME
from inbedder.prompting.templates import read_prompts
from inbedder.vectors.vectors import Vectors
from inbedder_evaluation.embedders import Embedder, make_embedders, make_mteb_embedders
from inbedder_evaluation.figures import draw_lines
from inbedder_evaluation.results import Cell, format_markdown, load_cells, make_table, save_cells
from inbedder_evaluation.runner import describe_run, run
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, as_question, read_csts
from inbedder_evaluation.tasks.task import fingerprint

RECIPES = Path(__file__).resolve().parents[2] / "finetune" / "recipes" / "csts"
KINDS = ("bi", "cross", "tri")
WHOLE_INPUT = ("encoding.pooler=mean", "encoding.transform=true")
PAPERS_BASE_SIZE = (f"model={BASE_NAME}", "training.learning_rate=3e-5")
"""Changes that run the paper's recipes on a bundled base, at the paper's learning rate for base-size models."""
TRAINED: dict[str, tuple[str, ...]] = {
    **{f"{kind}-encoder, trained": (kind,) for kind in KINDS},
    "bi-encoder on all-MiniLM-L6-v2, trained": ("bi", f"model={BASE_NAME}", 'encoding.template="{instruction}: {input}"'),
    "cross-encoder, mean of the whole input with MLP, trained": ("cross", *WHOLE_INPUT),
    "cross-encoder, sentences alone": ("cross", "encoding.reads=sentences"),
    "cross-encoder, condition alone": ("cross", "encoding.reads=condition", *WHOLE_INPUT),
    "bi-encoder, sentences alone": ("bi", "encoding.reads=sentences", "objective.loss=mse"),
}
STRONG_BASE = "sentence-transformers/all-mpnet-base-v2"
BASES = {
    "mini": ("model=mini", "encoding.template=inbedder"),
    BASE_NAME: (f"model={BASE_NAME}", 'encoding.template="{instruction}: {input}"'),
    "small": ("model=small", "encoding.pooler=last", "encoding.template=inbedder", "lora.r=32", "lora.alpha=64"),
    STRONG_BASE: (f"model={STRONG_BASE}", 'encoding.template="{instruction}: {input}"'),
}
COMPARED_SETTINGS = ("data.pairs=800", "training.epochs=1", "training.learning_rate=1.0e-4")
LOSSES = ("mse", "quad", "quad+mse")
ONE_EPOCH = ("training.epochs=1", "training.learning_rate=1.0e-4")
AT_THE_MASKS = ("encoding.pooler=masks", *ONE_EPOCH)
FEWER_PAIRS = ("data.pairs=1500", *ONE_EPOCH)
REAL: dict[str, tuple[int, tuple[str, ...]]] = {
    **{
        f"{kind}-encoder on {base}, {loss}, 800 pairs": (1, (kind, *BASES[base], *COMPARED_SETTINGS, f"objective.loss={loss}"))
        for kind in ("bi", "tri", "cross")
        for base in ("mini", BASE_NAME, *(["small"] if kind == "bi" else []))  # a decoder can only be a bi-encoder
        for loss in (LOSSES if kind != "cross" else LOSSES[:1])
    },
    f"bi-encoder on {STRONG_BASE}, two epochs": (
        3,
        ("bi", *BASES[STRONG_BASE], "training.epochs=2", "training.learning_rate=5.0e-5"),
    ),
    "bi-encoder on mini, at its masks": (3, ("bi", *AT_THE_MASKS)),
    "bi-encoder on mini, at its masks, with rows of our own": (1, ("bi", *AT_THE_MASKS)),
    "bi-encoder on mini, sentences alone, 1500 pairs": (
        1,
        ("bi", "encoding.reads=sentences", "objective.loss=mse", *FEWER_PAIRS),
    ),
    "cross-encoder on mini, 1500 pairs": (3, ("cross", *FEWER_PAIRS)),
    "cross-encoder on mini, sentences alone, 1500 pairs": (1, ("cross", "encoding.reads=sentences", *FEWER_PAIRS)),
    "cross-encoder on mini, condition alone, 1500 pairs": (1, ("cross", "encoding.reads=condition", *WHOLE_INPUT, *FEWER_PAIRS)),
    f"tri-encoder on {BASE_NAME}, 1500 pairs": (3, ("tri", *FEWER_PAIRS)),
    "cross-encoder on mini": (3, ("cross", *ONE_EPOCH)),
    "cross-encoder on mini, condition alone": (1, ("cross", "encoding.reads=condition", *WHOLE_INPUT, *ONE_EPOCH)),
    f"tri-encoder on {BASE_NAME}": (1, ("tri", *ONE_EPOCH)),
    f"tri-encoder on {BASE_NAME}, three epochs": (3, ("tri", "training.epochs=3", "training.learning_rate=1.0e-4")),
    **{
        f"{kind}-encoder of the paper on {BASE_NAME}, 1500 pairs": (
            1,
            (f"paper-{kind}-simcse-large", "data.pairs=1500", *PAPERS_BASE_SIZE),
        )
        for kind in ("cross", "bi")
    },
}
"""Encoders trained on the authors' rows: name -> number of seeds, recipe and its changes."""
SIZES = (90, 360)
SPLITS = ("test", "validation")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="C-STS: trained encoders, baselines, ablations.")
Output = Annotated[Path, typer.Option("-o", "--output", help="A .json file; the curve's figure is written next to it.")]
DataFile = Annotated[Path | None, typer.Option("--data", help="A file with a column split; default: the shipped captions.")]
RowsPath = Annotated[Path | None, typer.Option("--data", help="Such a file, or the folder of the authors' files.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of training seeds.")]
Changes = Annotated[list[str], typer.Option("--set", help="Change a setting of the recipe; may repeat.")]


@app.command("table")
def make_results_table(
    output: Output,
    data: DataFile = None,
    seeds: Seeds = 3,
    changes: Changes = [],  # noqa: B006 - typer copies defaults
    model: Annotated[list[str], typer.Option(help="Models without training on these rows; may repeat.")] = ["mini"],  # noqa: B006
    baseline: Annotated[list[str], typer.Option(help="Baselines as inbedder evaluate takes them.")] = [BASE_NAME],  # noqa: B006
) -> None:
    """Evaluate models without training, the three encoders, and the paper's ablations."""
    path = _check(output, data)
    embedders = [embedder for name in model for embedder in make_embedders(name)]
    embedders += [embedder for name in baseline for embedder in make_mteb_embedders(name)]
    tasks = [*(read_csts(path, split=split) for split in SPLITS), read_csts(path, as_questions=True)]
    run(embedders, tasks, output, seeds=range(1))
    for name, (kind, *settings) in TRAINED.items():
        for seed in range(seeds):
            train_cells(name, kind, [*settings, *changes], seed, path, output)
    typer.echo(format_markdown(make_table(load_cells(output))))


@app.command()
def split(
    source: Annotated[Path, typer.Argument(help="Rated rows without a column split, such as csts_train_reannotated.csv.gz.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .csv file, with a column split.")],
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of sentences for each of validation and test.")] = 500,
) -> None:
    """Split off equally many pairs of sentences, with all of their rows, for validation and for test."""
    from inbedder.conditional.rated_rows import COLUMNS, read_rated_pairs
    from inbedder_finetune.conditional.rated_pairs import split_development

    train, test = split_development(read_rated_pairs(source), pairs, seed=1)
    train, validation = split_development(train, pairs, seed=2)
    parts = {"train": train, "validation": validation, "test": test}
    rows = [{**{column: getattr(row, column) for column in COLUMNS}, "split": name} for name in parts for row in parts[name]]
    write_records(rows, output, guard_cells=False)


@app.command("untrained")
def evaluate_untrained(
    output: Output,
    data: DataFile = None,
    model: Annotated[list[str], typer.Option(help="Models that answer; may repeat.")] = ["mini"],  # noqa: B006
) -> None:
    """Evaluate models without training: with conditions unchanged, as questions, in several wordings; and re-encoded answers."""
    path = _check(output, data)
    plain, questions = read_csts(path), read_csts(path, as_questions=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in model:
            for subtract in (False, True):
                embedder, without_instruction = make_embedders(name, subtract_instruction=subtract, cache=Path(folder))
                run([embedder], [plain, questions], output, seeds=range(1))
                run([_average_over_wordings(embedder)], [plain], output, seeds=range(1))
            run([without_instruction], [plain], output, seeds=range(1))
            run(make_embedders(name, pooling="re-enc")[:1], [questions], output, seeds=range(1))
    run(make_mteb_embedders(BASE_NAME), [plain], output, seeds=range(1))
    typer.echo(format_markdown(make_table(load_cells(output))))


def _average_over_wordings(embedder: Embedder) -> Embedder:
    """Make an embedder that averages the unit vectors of several wordings of a condition."""
    wordings = [str(wording) for wording in read_prompts("csts")["wordings"]]

    def encode(texts: Sequence[str], conditions: str | Sequence[str]) -> Vectors:
        each = [conditions] * len(texts) if isinstance(conditions, str) else conditions
        plain = [as_question(condition).removeprefix("What is ").removesuffix("?") for condition in each]
        vectors = [embedder.encode(texts, [wording.format(condition=words) for words in plain]) for wording in wordings]
        return average_wordings(np.stack(vectors))[0]

    name, revision = f"{embedder.name}, mean of {len(wordings)} wordings", fingerprint([], [embedder.revision, wordings])
    return replace(embedder, name=name, revision=revision, encode=encode, verbatim=False)


@app.command("real")
def train_on_real_rows(
    output: Output,
    data: Annotated[Path, typer.Option("--data", help="The file that the command split wrote.")],
    names: Annotated[list[str], typer.Option("--only", help="Train encoders whose name contains this; may repeat.")] = [""],  # noqa: B006
    changes: Changes = [],  # noqa: B006
) -> None:
    """Train encoders on the rows of C-STS itself: kinds, bases, losses, ablations, and longer runs."""
    _check(output, data)
    with tempfile.TemporaryDirectory() as folder:
        extended_data = Path(folder) / data.name
        write_records([*read_rows(str(data)), *_read_written_rows()], extended_data, guard_cells=False)
        for name, (seeds, (kind, *settings)) in REAL.items():
            rows = extended_data if "our own" in name else data
            for seed in range(seeds if any(part in name for part in names) else 0):
                train_cells(name, kind, [*settings, *changes], seed, rows, output)
    typer.echo(format_markdown(make_table(load_cells(output))))


def _read_written_rows() -> list[dict[str, Any]]:
    """Read the training rows that were written for this project."""
    from inbedder.conditional.rated_rows import COLUMNS, read_rated_pairs
    from inbedder_finetune.conditional.rated_pairs import find_file

    rows = [row for name in ("csts.csv", "csts-captions.csv") for row in read_rated_pairs(find_file(name), "train")]
    return [{**{column: getattr(row, column) for column in COLUMNS}, "split": "train"} for row in rows]


@app.command("curve")
def plot_curve(
    output: Output,
    data: RowsPath = None,
    seeds: Seeds = 3,
    changes: Changes = [],  # noqa: B006
    size: Annotated[list[int], typer.Option(min=1, help="Number of training pairs below the maximum; may repeat.")] = list(SIZES),  # noqa: B006
    paper_model: Annotated[
        str | None, typer.Option(help="Train the variants KIND-MODEL of csts-paper of this model, such as simcse-large.")
    ] = None,
) -> None:
    """Train the three encoders on increasing numbers of pairs, up to all, and plot the curve."""
    from inbedder.conditional.rated_rows import read_rated_pairs

    path = _check(output, data)
    train_file, evaluated_files = find_row_files(path)
    pair_count = len({row.pair for row in read_rated_pairs(train_file, "train")})
    if max(size) > pair_count:
        raise InputError(f"{path} has {pair_count} training pairs, so --size cannot be {max(size)}.")
    scores: dict[int, dict[str, float]] = {}
    for pairs in sorted({*size, pair_count}):
        for kind in KINDS:
            settings = [] if pairs == pair_count else [f"data.pairs={pairs}"]
            base, recipe = (f" on {paper_model}", "paper") if paper_model else ("", kind)
            name = f"{kind}-encoder{base}, {f'{pairs} pairs' if settings else 'trained'}"
            settings += [f"variant={kind}-{paper_model}"] if paper_model else []
            cells = [train_cells(name, recipe, [*settings, *changes], seed, path, output)[0] for seed in range(seeds)]
            scores.setdefault(pairs, {})[kind] = mean(cell.scores[cell.main_score] for cell in cells)
    title = f"Spearman on the {next(iter(evaluated_files))} rows of {path.name}, mean of {seeds} seeds"
    draw_lines({title: scores}, output.with_name(f"{output.stem}_curve.png"), "training pairs")
    typer.echo(format_markdown(make_table(load_cells(output))))


def find_row_files(path: Path) -> tuple[Path, dict[str, Path]]:
    """Locate the training rows and the evaluated rows.

    Args:
        path: A file with a column split, or a folder with the authors' files, whose test rows hide their ratings.

    Returns:
        The file of the training rows, and the files of the evaluated splits by name, test first.
    """
    if path.is_dir():
        return path / "csts_train.csv", {"validation": path / "csts_validation.csv"}
    return path, dict.fromkeys(SPLITS, path)


def train_cells(name: str, kind: str, changes: Sequence[str], seed: int, path: Path, output: Path) -> list[Cell]:
    """Train and evaluate an encoder, unless the results file already holds its cells.

    Args:
        name: Name of the encoder in tables.
        kind: Name of the recipe ``finetune/recipes/csts/csts-{kind}.yaml``.
        changes: Changes to the recipe's settings.
        seed: Training seed.
        path: The rows (``find_row_files``).
        output: Results file.

    Returns:
        The cells of the evaluated splits, which the file now holds.
    """
    from inbedder.conditional.rated_rows import read_rated_pairs
    from inbedder_finetune.registry import read_method

    train_file, evaluated_files = find_row_files(path)
    data = {"folder": str(train_file.parent), "train": train_file.name, "validation": evaluated_files["validation"].name}
    overrides = [*(f"data.{key}={json.dumps(value)}" for key, value in data.items()), f"training.seed={seed}"]
    method, recipe = read_method(RECIPES / f"csts-{kind}.yaml", [*overrides, *changes])
    tasks = [read_csts(file, split=split) for split, file in evaluated_files.items()]
    train_rows = read_rated_pairs(train_file, "train")
    revision = fingerprint([asdict(row) for row in train_rows], _describe_training(recipe))
    keys = [(name, revision, task.info.name, task.info.revision, "raw", seed) for task in tasks]
    cells = {cell.key: cell for cell in load_cells(output)}
    if all(key in cells for key in keys):
        return [cells[key] for key in keys]
    started = time.time()
    pairs = recipe.data.pairs or len({row.pair for row in train_rows})
    settings = {"recipe": f"csts-{kind}.yaml", "changes": list(changes), "pairs": pairs}
    with tempfile.TemporaryDirectory() as folder:
        result = method.finetune(replace(recipe, training=replace(recipe.training, output=folder)))
        task_scores = [_evaluate(result, task) for task in tasks]
    seconds = round(time.time() - started, 1)
    for key, task, scores in zip(keys, tasks, task_scores, strict=True):
        cells[key] = Cell(*key, "spearman", scores, "", seconds, {**describe_run(task.info), **settings})
    save_cells(cells.values(), output)
    return [cells[key] for key in keys]


def _evaluate(folder: Path, task: ConditionalSTS) -> dict[str, float]:
    """Evaluate a trained encoder on a task."""
    from inbedder.conditional.encoder import ConditionalEncoder

    encoder = ConditionalEncoder.load(folder)
    outcome = task.evaluate_pairs(lambda first, second, conditions: encoder.similarity(first, second, condition=conditions))
    return {name: round(score, 2) for name, score in outcome.scores.items()}


def _describe_training(recipe: Any) -> Mapping[str, Any]:
    """Describe a recipe by the settings that affect the weights, without the seed and file names."""
    content: dict[str, Any] = asdict(recipe)
    ignored_settings = ("output", "seed", "save_steps", "log_steps")
    training = {key: value for key, value in content["training"].items() if key not in ignored_settings}
    return {**content, "training": training, "data": {"pairs": recipe.data.pairs, "skip_bad": recipe.data.skip_bad}}


def _check(output: Path, data: Path | None) -> Path:
    from inbedder_finetune.conditional.rated_pairs import find_file

    if output.suffix != ".json":
        raise InputError(f"{output} must be a .json file.")
    path = find_file("csts-captions.csv") if data is None else data
    if not path.exists():
        raise InputError(f"{path} does not exist. Set --data to the file of rated rows.")
    return path


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
