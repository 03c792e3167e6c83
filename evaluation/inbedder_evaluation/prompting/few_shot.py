r"""Few-shot prompting of generative models on C-STS and STS-B (Deshpande et al. 2023, section 4.2, tables 4, 11 and 12).

    python -m inbedder_evaluation.prompting.few_shot --model google/flan-t5-large --model google/flan-t5-xl --dtype bfloat16 \
        --data csts_validation.csv --examples csts_train.csv -o shots.json
    python -m inbedder_evaluation.prompting.few_shot --endpoint https://api.openai.com/v1 --model gpt-4-0314 \
        --data csts_validation.csv --examples csts_train.csv -o shots.json
    python -m inbedder_evaluation.prompting.few_shot --model google/flan-t5-large --predict submissions \
        --data csts_test.csv --examples csts_train.csv

``few_shot_prompts`` describes the prompts. A table without the column condition is prompted as STS-B, with ratings from 0 to 5.
The first number of the answer is the rating. An answer without a number, or with one outside the scale, is out of format: it is
counted and replaced by the middle of the scale, or treated as in the authors' code (``--authors-parsing``). The models of an
endpoint, which the authors' GPT-3.5 and GPT-4 are, read the prompts of decoders.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.conditional.rated_rows import RatedPair, read_rated_pairs
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, ModelError
from inbedder.prompting.templates import read_prompts
from inbedder_evaluation.metrics import pearson, spearman
from inbedder_evaluation.predictions import write_predictions
from inbedder_evaluation.prompting.chat_endpoint import ChatEndpoint
from inbedder_evaluation.prompting.few_shot_prompts import INSTRUCTIONS, FewShotPrompts, parse_answers
from inbedder_evaluation.results import Cell, format_aligned, load_cells, make_table, save_cells
from inbedder_evaluation.runner import describe_run
from inbedder_evaluation.tasks.conditional_sts import ConditionalSTS, read_csts
from inbedder_evaluation.tasks.task import fingerprint

SHOTS = (0, 2, 4)
NEW_TOKENS = 20
"""Maximum length of an answer in tokens."""
MAX_LENGTH = 2048

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Few-shot prompting on C-STS and STS-B.")


@dataclass(frozen=True)
class GenerativeModel:
    """A model that answers prompts: one of this package, or one behind an endpoint."""

    name: str
    """Name in tables."""
    revision: str
    """Identifies its weights, or its endpoint."""
    prompts: FewShotPrompts
    """Its prompts."""
    answer: Callable[[Sequence[str], Sequence[str]], list[str]]
    """Answers n queries under n contexts."""


@dataclass(frozen=True)
class Setting:
    """The prompts and the parsing of one cell."""

    instruction: str
    """"none", "short" or "long"."""
    shots: int
    """Number of examples."""
    seed: int
    """Seed of the sampled examples."""
    authors_parsing: bool
    """Whether answers out of format are treated as in the authors' code."""

    def format_name(self, model: str) -> str:
        """Format the name of a model's cell."""
        parsing = ", authors' parsing" if self.authors_parsing else ""
        return f"{model}, {self.instruction} instruction, {self.shots} shots{parsing}"


def load_generative(name: str, dataset: str, batch_size: int = 8, **options: Any) -> GenerativeModel:
    """Load a generative model.

    Args:
        name: Hub id or folder of a causal or encoder-decoder LM.
        dataset: "csts" or "stsb".
        batch_size: Maximum number of prompts in one pass.
        **options: Further arguments of ``InBedder``.

    Returns:
        The model.

    Raises:
        ModelError: If the model does not generate text, such as a masked LM.
    """
    options = {"max_length": MAX_LENGTH, "max_new_tokens": NEW_TOKENS} | options
    model = InBedder(name, template=FewShotPrompts(dataset, "causal").template, **options)
    kind = model.backbone.kind
    if kind not in read_prompts("csts")["few_shot"]["after"]:
        raise ModelError(f"{name} is a {kind} model; few-shot prompting needs a generative one (causal or encoder-decoder).")
    prompts = FewShotPrompts(dataset, kind)
    model = model.replace(template=prompts.template)

    def answer(queries: Sequence[str], contexts: Sequence[str]) -> list[str]:
        return [str(answer) for answer in model.answer(list(queries), list(contexts), batch_size=batch_size)]

    return GenerativeModel(name, model.revision, prompts, answer)


def connect_generative(name: str, dataset: str, batch_size: int, url: str) -> GenerativeModel:
    """Connect to a model behind an endpoint (``ChatEndpoint``).

    Args:
        name: The endpoint's name of the model.
        dataset: "csts" or "stsb".
        batch_size: Maximum number of requests at a time.
        url: The endpoint's base.

    Returns:
        The model.
    """
    endpoint, prompts = ChatEndpoint(url, name), FewShotPrompts(dataset, "causal")

    def answer(queries: Sequence[str], contexts: Sequence[str]) -> list[str]:
        rendered = [prompts.template.render(query, context) for query, context in zip(queries, contexts, strict=True)]
        return endpoint.answer([prompt.string for prompt in rendered], batch_size)

    return GenerativeModel(name, fingerprint([], [url, name]), prompts, answer)


@app.command()
@with_model_options
def main(
    model: Annotated[list[str], typer.Option(help="A causal or encoder-decoder LM: hub id or folder; repeatable.")],
    data: Annotated[Path, typer.Option(help="Table of rated rows; when it has a column split, only test rows are used.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Path of the results (.json); finished cells are kept.")] = Path(
        "few_shot.json"
    ),
    predict: Annotated[
        Path | None,
        typer.Option(help="Only write ratings of the rows, whose labels may be hidden: a folder of C-STS submissions."),
    ] = None,
    examples: Annotated[
        Path | None,
        typer.Option(help="Table of examples; when it has a column split, only train rows are used. Default: --data."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask models behind an endpoint of OpenAI's chat completions, whose key OPENAI_API_KEY in the environment holds.",
        ),
    ] = None,
    instruction: Annotated[list[str], typer.Option(help="none, short or long; repeatable.")] = list(INSTRUCTIONS),  # noqa: B006
    shots: Annotated[list[int], typer.Option(min=0, help="Number of examples, such as 0, 2 or 4; repeatable.")] = list(SHOTS),  # noqa: B006
    authors_parsing: Annotated[
        bool,
        typer.Option("--authors-parsing", help="Keep ratings outside the scale, and sample one for answers without a number."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sampled examples.")] = 0,
    limit: Annotated[int | None, typer.Option(min=2, help="Maximum number of rows.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size, or number of requests at a time.")] = 8,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Measure models under each given instruction and number of examples."""
    task = read_csts(data, limit=limit, to_predict=predict is not None)
    dataset = "csts" if task.rows[0]["condition"] else "stsb"
    _check_options(dataset, instruction, shots, endpoint, model_options)
    pool = read_rated_pairs(examples or data, "train", needs_condition=False) if any(shots) else []
    settings = [Setting(style, count, seed, authors_parsing) for style in instruction for count in shots]
    for name in model:
        if endpoint is None:
            loaded = load_generative(name, dataset, batch_size, **model_options)
        else:
            loaded = connect_generative(name, dataset, batch_size, endpoint)
        selected = loaded.prompts.select_examples(pool)
        if predict is None:
            measure_settings(loaded, task, selected, settings, output)
        else:
            for path in predict_settings(loaded, task, selected, settings, predict):
                typer.echo(f"Written: {path}")
        del loaded  # before the next model is loaded
    if predict is None:
        typer.echo(format_aligned(make_table(load_cells(output))))


def _check_options(
    dataset: str, instructions: Sequence[str], shots: Sequence[int], endpoint: str | None, model_options: dict[str, Any]
) -> None:
    if not set(instructions) <= set(INSTRUCTIONS):
        raise typer.BadParameter(f"choose from {', '.join(INSTRUCTIONS)}.", param_hint="--instruction")
    if any(count % FewShotPrompts(dataset, "causal").examples_per_unit for count in shots):
        raise typer.BadParameter("examples of C-STS come in pairs: give an even number.", param_hint="--shots")
    if "template" in model_options:
        raise typer.BadParameter("the prompts of this command have their own.", param_hint="--template")
    if endpoint and model_options:
        raise typer.BadParameter(f"leave out {', '.join(model_options)}: the endpoint loads the model.", param_hint="--endpoint")


def measure_settings(
    model: GenerativeModel, task: ConditionalSTS, examples: Sequence[RatedPair], settings: Sequence[Setting], output: Path
) -> None:
    """Measure a model under several settings, skipping cells that are already in the results file.

    Args:
        model: The model.
        task: The rated rows.
        examples: The rows that can be examples.
        settings: Instructions and numbers of examples.
        output: Results file.
    """
    cells = {cell.key: cell for cell in load_cells(output)}
    wording = read_prompts("csts")["few_shot"]
    data_revision = fingerprint([dict(row) for row in task.rows], [wording, [str(row) for row in examples]])
    for setting in settings:
        key = (setting.format_name(model.name), model.revision, task.info.name, data_revision, "raw", setting.seed)
        if key in cells:
            continue
        started = time.time()
        answers = request_ratings(model, task, examples, setting)
        parsed = parse_answers(answers, model.prompts.scale, as_authors=setting.authors_parsing)
        scores = {
            "spearman": spearman(parsed.ratings, task.scores),
            "pearson": pearson(parsed.ratings, task.scores),
            "percent_without_number": 100 * parsed.without_number / len(answers),
            "percent_outside_scale": 100 * parsed.outside / len(answers),
        }
        cells[key] = Cell(
            *key,
            main_score="spearman",
            scores={name: round(score, 2) for name, score in scores.items()},
            first_prompt="",  # rows of C-STS may not be redistributed
            seconds=round(time.time() - started, 1),
            metadata={**describe_run(task.info), "rows": len(answers)},
        )
        save_cells(cells.values(), output)


def predict_settings(
    model: GenerativeModel, task: ConditionalSTS, examples: Sequence[RatedPair], settings: Sequence[Setting], folder: Path
) -> Iterator[Path]:
    """Write a submission for each setting, skipping those that the folder already holds.

    Args:
        model: The model.
        task: The rows, whose labels may be hidden.
        examples: The rows that can be examples.
        settings: Instructions and numbers of examples.
        folder: The folder of submissions.

    Yields:
        The written files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for setting in settings:
        name = f"{Path(task.info.source).stem}, {setting.format_name(model.name)}, seed {setting.seed}"
        path = folder / f"{re.sub(r'[^a-zA-Z0-9._]+', '-', name)}.json"
        if not path.exists():
            answers = request_ratings(model, task, examples, setting)
            ratings = parse_answers(answers, model.prompts.scale, as_authors=setting.authors_parsing).ratings
            write_predictions(ratings, path)
            yield path


def request_ratings(model: GenerativeModel, task: ConditionalSTS, examples: Sequence[RatedPair], setting: Setting) -> list[str]:
    """Ask a model for a rating of each row.

    Args:
        model: The model.
        task: The rows.
        examples: The rows that can be examples.
        setting: Instruction and number of examples.

    Returns:
        Its answers, one per row.
    """
    prompts = model.prompts
    contexts = [prompts.render_context(row, examples, setting.instruction, setting.shots, setting.seed) for row in task.rows]
    return model.answer([prompts.render_query(row) for row in task.rows], contexts)


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
