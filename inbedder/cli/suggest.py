"""The command ``inbedder suggest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.cluster_output import Title, choose_title
from inbedder.cli.inputs import TableOptions, load_embedder
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import BatchSize, Input, Model, check_instructions, check_output, print_message, print_result

MAX_MAPS = 9
"""Maximum number of questions on the page."""


@with_model_options
def suggest(
    source: Input,
    instructions: Annotated[
        list[str],
        typer.Option(
            "-i",
            "--instruction",
            help="A question to try; repeatable. Default: the named instructions.",
            callback=check_instructions,
        ),
    ] = [],  # noqa: B006 - typer copies defaults
    questions: Annotated[Path | None, typer.Option(help="File with a question per line to try (.txt).")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .html page with a map of each question.")] = None,
    sample: Annotated[int, typer.Option(min=20, help="Maximum number of texts that the questions are tried on.")] = 300,
    table_options: TableOptions = TableOptions(),
    model: Model = "mini",
    title: Title = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample and of k-means.")] = 0,
    batch_size: BatchSize = 32,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Rank questions by how much they reveal."""
    check_output(output, (".html",), source)
    table = table_options.read(source)
    wordings = list(instructions)
    if questions is not None:
        from inbedder.io.tables import read_table

        wordings += read_table(str(questions)).texts
    embedder = load_embedder(model, **model_options)
    from inbedder.grouping.questions.suggestion import suggest_questions
    from inbedder.prompting.templates import resolve_instruction

    options: dict[str, Any] = {"sample": sample, "seed": seed, "batch_size": batch_size}
    suggestions = suggest_questions(table.texts, wordings or None, embedder, **options)
    print_result("score  answers  stability  differs from no question  is new  question")
    for each in suggestions:
        answers, novelty = f"{each.distinct_answers:7.1f}", f"{each.novelty:6.2f}"
        numbers = f"{each.score:5.2f}  {answers}  {each.stability:9.2f}  {each.difference:24.2f}  {novelty}"
        print_result(f"{numbers}  {resolve_instruction(each.instruction)}")
    if output is not None:
        from inbedder.grouping.report.page import save_report

        save_report([each.result for each in suggestions[:MAX_MAPS]], output, title=choose_title(title, source))
        print_message(f"Written: {output}")
