r"""Few-shot prompting of generative models on C-STS (Deshpande et al. 2023, section 4.2 and appendix A.3).

    python -m inbedder_evaluation.few_shot --model google/flan-t5-large \
        --data csts_validation.csv --examples csts_train.csv -o shots.json

A prompt is an instruction (none, short or long), 0, 2 or 4 examples in contrasting pairs (both conditions of the same two
sentences, the higher-rated first, drawn anew for each query and never of its own sentences), and the query; ``prompts/csts.yaml``
holds the words. Prompts are byte for byte those of the authors' code, which has a form for decoders and one for encoder-decoders
(which examples are drawn differs, and a decoder's own first token, if it has one, stays). The first number of the answer is the
rating. An answer without a number, or with one outside 1 to 5, is out of format: it is counted and replaced by 3, the middle of
the scale. (The authors' code draws a number there, and keeps those outside the scale.)
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
"""The rating that stands for an answer out of format."""
INSTRUCTIONS = ("none", "short", "long")
SHOTS = (0, 2, 4)
NEW_TOKENS = 20
"""Longest answer."""
MAX_LENGTH = 2048

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Few-shot prompting on C-STS.")


@dataclass(frozen=True)
class Answers:
    """What a model said, as ratings."""

    ratings: list[float]
    """One a row, replaced where the answer was out of format."""
    without_number: int
    """Answers without a number."""
    outside: int
    """Answers with a number outside 1 to 5."""


def parse_answers(answers: Sequence[str]) -> Answers:
    """Read ratings from answers: the first number of each.

    Args:
        answers: n texts, such as "The answer is 2.5."

    Returns:
        n ratings, and how many answers were out of format.
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
    """The mark behind which a model answers.

    Args:
        kind: "causal" or "seq2seq".

    Returns:
        "Output: " or "Output:".
    """
    few_shot = read_prompts("csts")["few_shot"]
    return str(few_shot["output"]).format(after=few_shot["after"][kind])


def make_template(kind: str) -> PromptTemplate:
    """The context (instruction and examples), the query, and the mark behind which a model answers; only a query is ever cut."""
    return PromptTemplate("csts", "{instruction}{input} " + read_output_mark(kind))


def render_query(row: Mapping[str, object], kind: str) -> str:
    """What is asked of a row.

    Args:
        row: With sentence1, sentence2 and condition.
        kind: "causal" or "seq2seq".

    Returns:
        Its part of the prompt.
    """
    few_shot = read_prompts("csts")["few_shot"]
    first, second, condition = (str(row[column]) for column in COLUMNS[:3])
    parts = {"sentence1": first.strip(), "sentence2": second.strip(), "condition": condition, "after": few_shot["after"][kind]}
    return str(few_shot["query"]).format(**parts)


def render_context(
    row: Mapping[str, object], examples: Sequence[RatedPair], instruction: str, shots: int, kind: str, seed: int = 0
) -> str:
    """What stands in front of a query.

    Args:
        row: The query's row.
        examples: Rows of contrasting pairs, as ``contrasting`` gives them.
        instruction: "none", "short" or "long".
        shots: How many examples, an even number.
        kind: "causal" or "seq2seq".
        seed: Seed of the draw, which also depends on the row.

    Returns:
        Instruction and examples, a line each.

    Raises:
        InputError: When there are too few pairs.
    """
    sentences = {row["sentence1"], row["sentence2"]}
    starts = [i for i in range(0, len(examples), 2) if {examples[i].sentence1, examples[i].sentence2} != sentences]
    if len(starts) < shots // 2:
        raise InputError(f"{shots} examples need {shots // 2} contrasting pairs beside the query's own; there are {len(starts)}.")
    sampled_starts = random.Random(clean_text(f"{seed} {render_query(row, kind)}")).sample(starts, shots // 2)
    examples_shown = [examples[place] for start in sampled_starts for place in (start, start + 1)]
    lines = [str(read_prompts("csts")["few_shot"]["instructions"][instruction]).strip()]
    lines += [
        f"{render_query({column: getattr(shot, column) for column in COLUMNS}, kind)} {read_output_mark(kind)}{float(shot.label)}"
        for shot in examples_shown
    ]
    return "".join(f"{line}\n" for line in lines if line)


def load_generative(name: str) -> InBedder:
    """A generative model that reads the prompts of this module.

    Args:
        name: A causal or encoder-decoder LM, as ``InBedder`` takes it.

    Returns:
        The model.

    Raises:
        ModelError: When it does not generate, such as a masked LM.
    """
    model = InBedder(name, template=make_template("causal"), max_length=MAX_LENGTH, max_new_tokens=NEW_TOKENS)
    kind = model.backbone.kind
    if kind not in read_prompts("csts")["few_shot"]["after"]:
        raise ModelError(f"{name} is a {kind} model; few-shot prompting needs a generative one (causal or encoder-decoder).")
    return model.replace(template=make_template(kind))


@app.command()
def main(
    model: Annotated[str, typer.Option(help="A causal or encoder-decoder LM: hub id or folder.")],
    data: Annotated[Path, typer.Option(help="The rated rows; of a column split, those of test.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file; finished cells in it are kept.")],
    examples: Annotated[
        Path | None, typer.Option(help="Rows of the examples; of a column split, those of train. None is --data.")
    ] = None,
    instruction: Annotated[list[str], typer.Option(help="none, short or long; may repeat.")] = list(INSTRUCTIONS),  # noqa: B006
    shots: Annotated[list[int], typer.Option(help="0, 2 or 4; may repeat.")] = list(SHOTS),  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the drawn examples.")] = 0,
    limit: Annotated[int | None, typer.Option(min=2, help="Only so many rows.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Most prompts in one pass.")] = 8,
) -> None:
    """Measure a model under every asked instruction and number of examples."""
    for style in instruction:
        if style not in INSTRUCTIONS:
            raise typer.BadParameter(f"choose of {', '.join(INSTRUCTIONS)}.", param_hint="--instruction")
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
