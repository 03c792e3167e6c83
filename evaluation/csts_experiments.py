"""C-STS of our own: the trained encoders and ablations, the models without training, and the curve over training size.

    python -m evaluation.csts_experiments table -o finetune/results/csts.json          (C-STS paper, tables 2, 3 and 10)
    python -m evaluation.csts_experiments curve -o finetune/results/csts.json          (figure 3)
    python -m evaluation.csts_experiments table -o finetune/results/csts.json --data finetune/written/csts.csv

The shipped captions are read where --data names no other file. All keep to one file, so that what two of them train is trained
once. Each trained model is a cell a seed, measured on the rows of "test", with the Spearman of the validation rows beside it; the
tables show mean and standard deviation over the seeds. A finished cell is not computed again. Weights are not kept.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from evaluation.embedders import inbedder_embedders, mteb_embedders
from evaluation.figures import lines
from evaluation.metrics import pearson, spearman
from evaluation.results import Cell, load_cells, markdown, save_cells, table
from evaluation.runner import about_of, run
from evaluation.tasks.base import fingerprint
from evaluation.tasks.conditional_sts import ConditionalSTS, csts_of_table
from inbedder.errors import InbedderError, InputError
from inbedder.models.bundled import BASE_NAME

RECIPES = Path(__file__).resolve().parent.parent / "finetune" / "recipes"
KINDS = ("bi", "cross", "tri")
PAPERS_POOLER = ("encoding.pooler=mean", "encoding.transform=true")
TRAINED: dict[str, tuple[str, ...]] = {
    **{f"{kind}-encoder, trained": (kind,) for kind in KINDS},
    "bi-encoder on all-MiniLM-L6-v2, trained": ("bi", f"model={BASE_NAME}", 'encoding.template="{instruction}: {input}"'),
    "cross-encoder of the paper, trained": ("cross", *PAPERS_POOLER),
    "cross-encoder, sentences alone": ("cross", "encoding.reads=sentences"),
    "cross-encoder, condition alone": ("cross", "encoding.reads=condition", *PAPERS_POOLER),
    "bi-encoder, sentences alone": ("bi", "encoding.reads=sentences", "objective.loss=mse"),
}
SIZES = (90, 360)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="C-STS: trained encoders, baselines, ablations.")
Output = Annotated[Path, typer.Option("-o", "--output", help="A .json file; the curve's figure goes beside it.")]
DataFile = Annotated[Path | None, typer.Option("--data", help="A file with a column split; None is the shipped one.")]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds of training.")]
Changes = Annotated[list[str], typer.Option("--set", help="Change a setting of every recipe; may repeat.")]


@app.command("table")
def whole_table(
    output: Output,
    data: DataFile = None,
    seeds: Seeds = 3,
    changes: Changes = [],  # noqa: B006 - typer copies defaults
    model: Annotated[list[str], typer.Option(help="Models without training on these rows; may repeat.")] = ["mini"],  # noqa: B006
    baseline: Annotated[list[str], typer.Option(help="Baselines as inbedder evaluate takes them.")] = [BASE_NAME],  # noqa: B006
) -> None:
    """The models without training, the three encoders, and the paper's ablations."""
    path = _check(output, data)
    embedders = [one for name in model for one in inbedder_embedders(name)]
    embedders += [one for name in baseline for one in mteb_embedders(name)]
    run(embedders, [csts_of_table(path), csts_of_table(path, as_questions=True)], output, seeds=range(1))
    for name, (kind, *own) in TRAINED.items():
        for seed in range(seeds):
            trained_cell(name, kind, [*own, *changes], seed, path, output)
    typer.echo(markdown(table(load_cells(output))))


@app.command()
def curve(
    output: Output,
    data: DataFile = None,
    seeds: Seeds = 3,
    changes: Changes = [],  # noqa: B006
    size: Annotated[list[int], typer.Option(min=1, help="Fewer pairs than there are; may repeat.")] = list(SIZES),  # noqa: B006
) -> None:
    """The three encoders, trained on more and more pairs, at last on all."""
    from finetune.conditional_data import read_rated

    path = _check(output, data)
    every = len({row.pair for row in read_rated(path, "train")})
    found: dict[int, dict[str, float]] = {}
    for pairs in sorted({*size, every}):
        for kind in KINDS:
            name, own = (
                (f"{kind}-encoder, trained", [])
                if pairs == every
                else (f"{kind}-encoder, {pairs} pairs", [f"data.pairs={pairs}"])
            )
            cells = [trained_cell(name, kind, [*own, *changes], seed, path, output) for seed in range(seeds)]
            found.setdefault(pairs, {})[kind] = mean(cell.scores[cell.main_score] for cell in cells)
    title = f"Spearman on the test rows of {path.name}, mean of {seeds} seeds"
    lines(found, output.with_name(f"{output.stem}_curve.png"), title, "pairs learned")
    typer.echo(markdown(table(load_cells(output))))


def trained_cell(name: str, kind: str, changes: Sequence[str], seed: int, path: Path, output: Path) -> Cell:
    """Train an encoder, or find it measured.

    Args:
        name: What tables call it.
        kind: Which of ``finetune/recipes/csts-*.yaml``.
        changes: Settings of the recipe to change.
        seed: Seed of training.
        path: The rows, with a column split.
        output: Results file.

    Returns:
        The cell, which the file now holds.
    """
    from finetune.conditional_data import read_rated
    from finetune.conditional_training import load_rated
    from finetune.methods import read_method

    where = [f"data.folder={path.parent}", f"data.train={path.name}", f"data.validation={path.name}", f"training.seed={seed}"]
    method, recipe = read_method(RECIPES / f"csts-{kind}.yaml", [*where, *changes])
    task = csts_of_table(path)
    revision = fingerprint([asdict(row) for row in read_rated(path, "train")], _identity(recipe))
    key = (name, revision, task.info.name, task.info.revision, "raw", seed)
    known = {cell.key: cell for cell in load_cells(output)}
    if key in known:
        return known[key]
    started = time.time()
    learned, watched = load_rated(recipe)
    with tempfile.TemporaryDirectory() as folder:
        result = method.finetune(replace(recipe, training=replace(recipe.training, output=folder)))
        scores, first = _measured(result, task, watched)
    settings = {"recipe": f"csts-{kind}.yaml", "changes": list(changes), "pairs": len({row.pair for row in learned})}
    seconds = round(time.time() - started, 1)
    known[key] = Cell(*key, "spearman", scores, first, seconds, {**about_of(task.info), **settings})
    save_cells(known.values(), output)
    return known[key]


def _measured(folder: Path, task: ConditionalSTS, watched: Sequence[Any]) -> tuple[dict[str, float], str]:
    """Scores of a trained encoder, and what it reads of the first pair."""
    from finetune.conditional import ConditionalEncoder

    encoder = ConditionalEncoder.load(folder)
    given: list[list[str]] = [[str(row[column]) for row in task.rows] for column in ("sentence1", "sentence2")]
    found = encoder.similarity(*given, condition=task.instructions)
    sentences = [[getattr(row, column) for row in watched] for column in ("sentence1", "sentence2", "condition")]
    ratings = [row.label for row in watched]
    scores = {"spearman": spearman(found, task.scores), "pearson": pearson(found, task.scores)}
    if watched:
        scores["validation_spearman"] = spearman(encoder.similarity(*sentences[:2], condition=sentences[2]), ratings)
    parts, _ = encoder.read(given[0][:1], given[1][:1], task.instructions[:1])
    read = " | ".join(encoder.tokenizer.decode(ids) for ids in parts[0])
    return {name: round(score, 2) for name, score in scores.items()}, read


def _identity(recipe: Any) -> Mapping[str, Any]:
    """What of a recipe changes what is learned, the seed and the names of files left aside."""
    content: dict[str, Any] = asdict(recipe)
    aside = ("output", "seed", "save_steps", "log_steps")
    training = {key: value for key, value in content["training"].items() if key not in aside}
    return {**content, "training": training, "data": {"pairs": recipe.data.pairs, "skip_bad": recipe.data.skip_bad}}


def _check(output: Path, data: Path | None) -> Path:
    from finetune.conditional_data import find_file

    if output.suffix != ".json":
        raise InputError(f"{output} must be a .json file; the figure goes beside it.")
    path = find_file("csts-captions.csv") if data is None else data
    if not path.is_file():
        raise InputError(f"There is no {path}. Give the rows by --data.")
    return path


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
