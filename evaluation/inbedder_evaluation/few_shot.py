r"""Few-shot prompting of generative models on C-STS (Deshpande et al. 2023, section 4.2 and appendix A.3).

    python -m inbedder_evaluation.few_shot --model google/flan-t5-large \
        --data csts_validation.csv --examples csts_train.csv -o shots.json

A prompt consists of an instruction (none, short or long), 0, 2 or 4 examples in contrasting pairs, and the query. A contrasting
pair holds both conditions of the same two sentences, the higher-rated first. Pairs are sampled for each query and never have its
sentences. ``prompts/csts.yaml`` holds the wording. Prompts match those of the authors' code byte for byte; the
code has one form for decoders and one for encoder-decoders. Two things differ: the sampled examples, and a decoder's
beginning-of-sequence token, which is kept. The first number of the answer is the rating. An answer without a number, or with one
outside 1 to 5, is out of format: it is counted and replaced by 3, the middle of the scale. (The authors' code samples a number
for answers without one and keeps those outside the scale.)
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from inbedder.conditional.rated_rows import COLUMNS, MAX_RATING, MIN_RATING, RatedPair, read_rated_pairs, select_contrasting
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError, InputError, ModelError
from inbedder.prompting.templates import PromptTemplate, read_prompts
from inbedder.prompting.tokenization import clean_text
from inbedder_evaluation.metrics import pearson, spearman
from inbedder_evaluation.results import Cell, format_aligned, load_cells, make_table, save_cells
from inbedder_evaluation.runner import describe_run
from inbedder_evaluation.tasks.conditional_sts import read_csts
from inbedder_evaluation.tasks.task import fingerprint

REPLACEMENT = (MIN_RATING + MAX_RATING) / 2
"""The rating that replaces an answer out of format."""
INSTRUCTIONS = ("none", "short", "long")
SHOTS = (0, 2, 4)
NEW_TOKENS = 20
"""Maximum length of an answer in tokens."""
MAX_LENGTH = 2048

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Few-shot prompting on C-STS.")


@dataclass(frozen=True)
class Answers:
    """A model's answers, parsed as ratings."""

    ratings: list[float]
    """One rating per row; replaced when the answer was out of format."""
    without_number: int
    """Number of answers without a number."""
    outside: int
    """Number of answers with a number outside 1 to 5."""


def parse_answers(answers: Sequence[str]) -> Answers:
    """Parse ratings from answers: the first number of each.

    Args:
        answers: n texts, such as "The answer is 2.5."

    Returns:
        n ratings, and the numbers of answers out of format.
    """
    matches = [re.search(r"(?:(?<!\w)-)?(?:\d+(?:\.\d+)?|\.\d+)", answer) for answer in answers]
    numbers = [None if match is None else float(match[0]) for match in matches]
    fits = [number is not None and MIN_RATING <= number <= MAX_RATING for number in numbers]
    return Answers(
        ratings=[number if fit and number is not None else REPLACEMENT for number, fit in zip(numbers, fits, strict=True)],
        without_number=sum(number is None for number in numbers),
        outside=sum(number is not None and not fit for number, fit in zip(numbers, fits, strict=True)),
    )


def read_output_mark(kind: str) -> str:
    """Read the marker after which a model answers.

    Args:
        kind: "causal" or "seq2seq".

    Returns:
        "Output: " or "Output:".
    """
    few_shot = read_prompts("csts")["few_shot"]
    return str(few_shot["output"]).format(after=few_shot["after"][kind])


def make_template(kind: str) -> PromptTemplate:
    """Make the template: context (instruction and examples), query, and answer marker; only the query is ever truncated."""
    return PromptTemplate("csts", "{instruction}{input} " + read_output_mark(kind))


def render_query(row: Mapping[str, object], kind: str) -> str:
    """Render the query of a row.

    Args:
        row: A row with sentence1, sentence2 and condition.
        kind: "causal" or "seq2seq".

    Returns:
        The query part of the prompt.
    """
    few_shot = read_prompts("csts")["few_shot"]
    first, second, condition = (str(row[column]) for column in COLUMNS[:3])
    parts = {"sentence1": first.strip(), "sentence2": second.strip(), "condition": condition, "after": few_shot["after"][kind]}
    return str(few_shot["query"]).format(**parts)


def render_context(
    row: Mapping[str, object], examples: Sequence[RatedPair], instruction: str, shots: int, kind: str, seed: int = 0
) -> str:
    """Render the instruction and examples that precede a query.

    Args:
        row: The query's row.
        examples: Rows of contrasting pairs, as ``select_contrasting`` returns them.
        instruction: "none", "short" or "long".
        shots: Number of examples, an even number.
        kind: "causal" or "seq2seq".
        seed: Seed of the sample, which also depends on the row.

    Returns:
        Instruction and examples, one per line.

    Raises:
        InputError: When there are too few pairs.
    """
    sentences = {row["sentence1"], row["sentence2"]}
    starts = [i for i in range(0, len(examples), 2) if {examples[i].sentence1, examples[i].sentence2} != sentences]
    if len(starts) < shots // 2:
        raise InputError(
            f"{shots} examples need {shots // 2} contrasting pairs other than the query's own; there are {len(starts)}."
        )
    sampled_starts = random.Random(clean_text(f"{seed} {render_query(row, kind)}")).sample(starts, shots // 2)
    examples_shown = [examples[place] for start in sampled_starts for place in (start, start + 1)]
    lines = [str(read_prompts("csts")["few_shot"]["instructions"][instruction]).strip()]
    lines += [
        f"{render_query({column: getattr(shot, column) for column in COLUMNS}, kind)} {read_output_mark(kind)}{float(shot.label)}"
        for shot in examples_shown
    ]
    return "".join(f"{line}\n" for line in lines if line)


def load_generative(name: str) -> InBedder:
    """Load a generative model with the prompt template of this module.

    Args:
        name: Hub id or folder of a causal or encoder-decoder LM.

    Returns:
        The model.

    Raises:
        ModelError: When the model does not generate text, such as a masked LM.
    """
    model = InBedder(name, template=make_template("causal"), max_length=MAX_LENGTH, max_new_tokens=NEW_TOKENS)
    kind = model.backbone.kind
    if kind not in read_prompts("csts")["few_shot"]["after"]:
        raise ModelError(f"{name} is a {kind} model; few-shot prompting needs a generative one (causal or encoder-decoder).")
    return model.replace(template=make_template(kind))


@app.command()
def main(
    model: Annotated[str, typer.Option(help="A causal or encoder-decoder LM: hub id or folder.")],
    data: Annotated[Path, typer.Option(help="Table of rated rows; when it has a column split, only test rows are used.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Path of the results (.json); finished cells are kept.")],
    examples: Annotated[
        Path | None,
        typer.Option(help="Table of examples; when it has a column split, only train rows are used. Default: --data."),
    ] = None,
    instruction: Annotated[list[str], typer.Option(help="none, short or long; repeatable.")] = list(INSTRUCTIONS),  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="Number of examples: 0, 2 or 4; repeatable.")] = list(SHOTS),  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the sampled examples.")] = 0,
    limit: Annotated[int | None, typer.Option(min=2, help="Maximum number of rows.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size.")] = 8,
) -> None:
    """Measure a model under each given instruction and number of examples."""
    for style in instruction:
        if style not in INSTRUCTIONS:
            raise typer.BadParameter(f"choose from {', '.join(INSTRUCTIONS)}.", param_hint="--instruction")
    if any(shot < 0 or shot % 2 for shot in shots):
        raise typer.BadParameter("examples come in pairs: give an even number.", param_hint="--shots")
    task = read_csts(data)
    rows = task.rows[:limit]
    examples_shown = select_contrasting(read_rated_pairs(examples or data, "train")) if any(shots) else []
    loaded = load_generative(model)
    kind = loaded.backbone.kind
    cells = {cell.key: cell for cell in load_cells(output)}
    data_revision = fingerprint(
        [dict(row) for row in rows], [read_prompts("csts")["few_shot"], [str(row) for row in examples_shown]]
    )
    for style in instruction:
        for count in shots:
            key = (f"{model}, {style} instruction, {count} shots", loaded.revision, task.info.name, data_revision, "raw", seed)
            if key in cells:
                continue
            contexts = [render_context(row, examples_shown, style, count, kind, seed) for row in rows]
            started = time.time()
            answers = loaded.answer([render_query(row, kind) for row in rows], contexts, batch_size=batch_size)
            parsed = parse_answers([str(answer) for answer in answers])
            scores = {
                "spearman": spearman(parsed.ratings, task.scores[:limit]),
                "pearson": pearson(parsed.ratings, task.scores[:limit]),
                "percent_without_number": 100 * parsed.without_number / len(rows),
                "percent_outside_scale": 100 * parsed.outside / len(rows),
            }
            cells[key] = Cell(
                *key,
                main_score="spearman",
                scores={name: round(score, 2) for name, score in scores.items()},
                first_prompt="",  # rows of C-STS may not be redistributed
                seconds=round(time.time() - started, 1),
                metadata={**describe_run(task.info), "replacement": REPLACEMENT, "rows": len(rows)},
            )
            save_cells(cells.values(), output)
    typer.echo(format_aligned(make_table(list(cells.values()))))


if __name__ == "__main__":
    try:
        app()
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
