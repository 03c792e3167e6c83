"""The command ``inbedder cluster``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.assign import Save, check_save_folders
from inbedder.cli.cluster_output import Title, choose_title, write_results
from inbedder.cli.crosstab_tables import CrossTabOptions, CrossTabulation
from inbedder.cli.inputs import TableOptions, embed_guided, load_embedder
from inbedder.cli.model_options import with_cluster_options, with_model_options
from inbedder.cli.shared_options import (
    INPUT,
    OUTPUT,
    TABLE_TYPES,
    BatchSize,
    GuardCells,
    Guided,
    Input,
    Instructions,
    Model,
    check_output,
    check_outputs,
    parse_group_counts,
    print_message,
    print_stage,
)
from inbedder.cli.timing_option import with_timings
from inbedder.errors import format_count
from inbedder.grouping.cluster_options import PANEL as GROUPS
from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.runtime.timings import time_stage

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.clustering import ClusterResult

Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o",
        "--output",
        help="A .html report, or your table with the groups (.csv .tsv .jsonl .json .parquet .xlsx); repeatable.",
    ),
]
LabelColumns = Annotated[list[str] | None, typer.Option(help="Column of known labels to compare the groups with; repeatable.")]
GroupCounts = Annotated[list[str], typer.Option("-k", help="Number of groups, or auto; repeat to set it per question.")]
OneQuestion = Annotated[
    bool, typer.Option("--one-question", help="Treat all -i as wordings of one question and group once.", rich_help_panel=GROUPS)
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Group the parts of long texts, each with topics of its own: paragraph, sentence or a number of words.",
        rich_help_panel=INPUT,
    ),
]
MarkWords = Annotated[
    bool,
    typer.Option("--mark-words", help="Mark the words of the report's examples that answers rest on.", rich_help_panel=GROUPS),
]
Top = Annotated[
    int, typer.Option(min=1, help="Number of groups per text in the table, with the share of each.", rich_help_panel=GROUPS)
]
Atlas = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.parquet",
        help="Write your table and the report's map for embedding-atlas; prints its command.",
        rich_help_panel=OUTPUT,
    ),
]
AskInPage = Annotated[
    bool,
    typer.Option(
        "--ask-in-page",
        help="Write the model into the report: it answers further questions offline, in the browser, and has 24 MB more.",
        rich_help_panel=OUTPUT,
    ),
]


@with_timings
@with_model_options
@with_cluster_options
def cluster(
    source: Input,
    instructions: Instructions,
    output: Outputs = [Path("report.html")],  # noqa: B006 - typer copies defaults
    k: GroupCounts = ["auto"],  # noqa: B006
    table_options: TableOptions = TableOptions(),
    model: Model = "mini",
    crosstab_options: CrossTabOptions = CrossTabOptions(),
    split: Split = None,
    save: Save = None,
    atlas: Atlas = None,
    ask_in_page: AskInPage = False,
    label_column: LabelColumns = None,
    title: Title = None,
    mark_words: MarkWords = False,
    top: Top = 1,
    one_question: OneQuestion = False,
    guard_cells: GuardCells = True,
    batch_size: BatchSize = 32,
    guided: Guided = None,
    cluster_options: dict[str, Any] = {},  # noqa: B006 - a decorator fills it
    model_options: dict[str, Any] = {},  # noqa: B006
) -> None:
    """Group texts by their answers to a question."""
    check_output(atlas, (".parquet",), source, "--atlas")
    check_outputs([*output, *([] if atlas is None else [atlas])], (".html", *TABLE_TYPES), source)
    groupings = 1 if one_question else len(instructions)
    counts = parse_group_counts(k, groupings)
    if one_question and guided is not None:
        raise typer.BadParameter("it maps vectors of one wording; leave it out with --one-question.", param_hint="--guided")
    if split is not None and top > 1:
        raise typer.BadParameter("with --split the table has the shares of all groups; leave it out.", param_hint="--top")
    if ask_in_page and all(path.suffix.lower() != ".html" for path in output):
        raise typer.BadParameter("it is for a report: add -o report.html, or leave it out.", param_hint="--ask-in-page")
    check_save_folders(save, groupings)
    table = table_options.read(source)
    from inbedder.grouping.document_parts import parse_unit, split_documents

    parts = None if split is None else split_documents(table.texts, parse_unit(split))
    texts_table = table if parts is None else table.repeat_rows(parts.texts, parts.documents.tolist())
    for count in counts:
        ClusterOptions(**cluster_options, k=count).check_count(len(texts_table.texts))  # before the model is loaded
    cross_tabulation = CrossTabulation(texts_table, crosstab_options)
    labels = {name: texts_table.column(name) for name in label_column or ()}
    if cluster_options.get("exact"):
        model_options = {"dtype": "float64", **model_options}
    embedder = load_embedder(model, **model_options)
    if ask_in_page:
        from inbedder.grouping.report.further_questions import check_page_model

        check_page_model(embedder)
    options = {**cluster_options, "given_labels": labels, "model": embedder, "batch_size": batch_size}
    with time_stage("groups"):
        results = _cluster_texts(texts_table.texts, instructions, counts, one_question, guided, options)
        results = _add_effects(results, embedder, cluster_options.get("seed", 0), batch_size, is_guided=guided is not None)
        if mark_words:
            from inbedder.grouping.describe.word_evidence import add_evidence

            results = [add_evidence(result, embedder, batch_size=batch_size) for result in results]
    if not embedder.backbone.answers:
        print_message(f"{model} does not answer, so the groups are named by the words of their texts.")
    write_results(
        results,
        table,
        cross_tabulation,
        output,
        save,
        parts=parts,
        title=choose_title(title, source),
        guard_cells=guard_cells,
        top=top,
        atlas=atlas,
        page_model=embedder if ask_in_page else None,
    )


def _add_effects(
    results: list[ClusterResult], embedder: InBedder, seed: int, batch_size: int, *, is_guided: bool
) -> list[ClusterResult]:
    """Note how much each question changes its groups, if the model reads texts without a question in little time."""
    if embedder.base_encoder is None:
        return results
    from inbedder.encoding.guided import encode_general
    from inbedder.errors import TextCutWarning
    from inbedder.grouping.describe.question_effect import add_effects
    from inbedder.grouping.prepare.exact import round_vectors

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextCutWarning)  # the questions have warned
        encode = partial(encode_general, embedder) if is_guided else embedder.encode  # what the cache has
        general_vectors = encode(results[0].texts, batch_size=batch_size, precision="float32")
        general_vectors = general_vectors[:, : embedder.base_encoder.dimension]
        if results[0].is_exact:
            general_vectors = round_vectors(general_vectors)
    return add_effects(results, general_vectors, seed)


def _cluster_texts(
    texts: list[str],
    instructions: list[str],
    counts: list[int | str],
    one_question: bool,
    guided: int | None,
    options: dict[str, Any],
) -> list[ClusterResult]:
    """Group texts under each instruction, or once under all of them; make the names of the groups distinct."""
    from inbedder.grouping.clustering import cluster as cluster_texts
    from inbedder.grouping.grouped_texts import deduplicate_group_names

    if one_question:
        return [cluster_texts(texts, instructions, k=counts[0], **options)]
    print_stage(f"Reading {format_count(len(texts), 'text')} under {format_count(len(instructions), 'question')}, and grouping.")
    vectors: Sequence[Any] = [None] * len(instructions)
    if guided is not None:
        vectors = embed_guided(options["model"], texts, instructions, guided, options["batch_size"], "float32")
    apart_from = options.pop("apart_from", None)  # no question is grouped apart from itself
    return deduplicate_group_names(
        [
            cluster_texts(
                texts,
                instruction,
                k=count,
                embeddings=vectors_of_question,
                apart_from=None if instruction == apart_from else apart_from,
                **options,
            )
            for instruction, count, vectors_of_question in zip(instructions, counts, vectors, strict=True)
        ]
    )
