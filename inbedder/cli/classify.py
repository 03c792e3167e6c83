"""The command ``inbedder classify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.cluster_output import Title, choose_title
from inbedder.cli.crosstab_tables import CrossTabOptions, CrossTabulation
from inbedder.cli.deferred_errors import DeferredErrors
from inbedder.cli.inputs import TableOptions, load_embedder
from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import (
    TABLE_TYPES,
    BatchSize,
    GuardCells,
    Input,
    Instruction,
    ModelOfCodebook,
    check_outputs,
    print_message,
)

if TYPE_CHECKING:
    from inbedder.classification.categories import Category
    from inbedder.classification.category_result import Classification, LabelledRows
    from inbedder.classification.codebook import Codebook

Into = Annotated[
    list[str] | None,
    typer.Option(
        "--into",
        metavar="CATEGORY|FILE",
        help="A category, or a file of categories: a table with a column category and, if you like, description and example "
        "(a row per example), or a .txt with a category per line; repeatable.",
    ),
]
CodebookFile = Annotated[
    Path | None,
    typer.Option("--codebook", help="A codebook of inbedder codebook: question, categories and minimum score."),
]
WithMany = Annotated[
    bool,
    typer.Option(
        "--many",
        help="Add all categories of each text: a column of names, and one of 0 and 1 per category.",
    ),
]
MaxGap = Annotated[
    float | None,
    typer.Option(
        min=0, help="Maximum difference of a further category's score from the text's best one, with --many; default: 0.05."
    ),
]
Outputs = Annotated[
    list[Path],
    typer.Option(
        "-o",
        "--output",
        help="Your table with the categories (.csv .tsv .jsonl .json .parquet .xlsx), or a .html report; repeatable.",
    ),
]
WithOther = Annotated[bool, typer.Option("--other", help='Allow "none of these": texts that fit every category badly.')]
MinScore = Annotated[
    float | None,
    typer.Option(min=-1, max=1, help="Minimum score of a text in a category; default of --other: set by the corpus."),
]
WithUnsure = Annotated[bool, typer.Option("--unsure", help='Allow "not sure": texts that fit two categories about equally well.')]
MinLead = Annotated[
    float | None,
    typer.Option(min=0, help="Minimum difference of the best and the second-best score; default of --unsure: set by the corpus."),
]
Top = Annotated[int, typer.Option(min=1, help="Number of categories per text.")]
LabelColumn = Annotated[
    str | None,
    typer.Option(help="Column of known categories, blank where unknown: calibrates the probabilities and measures the accuracy."),
]

EXAMPLES_ADVICE = "About five example texts per category mostly find more: a table for --into with a column example, one per row."


@with_model_options
def classify(
    source: Input,
    into: Into = None,
    codebook: CodebookFile = None,
    instruction: Instruction = None,
    output: Outputs = [Path("classified.csv")],  # noqa: B006 - typer copies defaults
    with_other: WithOther = False,
    min_score: MinScore = None,
    with_unsure: WithUnsure = False,
    min_lead: MinLead = None,
    top: Top = 1,
    with_many: WithMany = False,
    max_gap: MaxGap = None,
    label_column: LabelColumn = None,
    table_options: TableOptions = TableOptions(),
    model: ModelOfCodebook = None,
    crosstab_options: CrossTabOptions = CrossTabOptions(),
    title: Title = None,
    guard_cells: GuardCells = True,
    batch_size: BatchSize = 32,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Classify texts into your own categories."""
    check_outputs(output, (".html", *TABLE_TYPES), source)
    if max_gap is not None and not with_many:
        raise typer.BadParameter("this needs --many.", param_hint="--max-gap")
    rules = _load_rules(into or [], codebook, instruction, model)
    if top > len(rules.codes):
        raise typer.BadParameter(f"there are {len(rules.codes)} categories.", param_hint="--top")
    table = table_options.read(source)
    labels = None if label_column is None else table.column(label_column)
    cross_tabulation = CrossTabulation(table, crosstab_options)
    embedder = load_embedder(model or rules.model, **model_options)
    threshold = "auto" if with_other and min_score is None else min_score
    lead = "auto" if with_unsure and min_lead is None else min_lead
    options = dict[str, Any](min_score=threshold, min_lead=lead, labels=labels, batch_size=batch_size)
    result = rules.classify(table.texts, embedder, **options)
    if result.min_score is None and rules.min_score is not None:
        print_message(f"The min_score of the codebook is of {rules.model}, so every text gets a category. See --min-score.")
    _print_categories(result)
    many_columns = _make_many_columns(result, max_gap) if with_many else {}
    pages = [path for path in output if path.suffix.lower() == ".html"]
    groupings = []
    if pages or crosstab_options.by or crosstab_options.over:
        from inbedder.classification.category_groups import make_category_groups

        groupings = [make_category_groups(result, embedder, batch_size=batch_size)]
        cross_tabulation.compute(groupings)
        cross_tabulation.print_tables()
    failures = DeferredErrors()
    rows = result.rows(top)
    columns = {name: [row[name] for row in rows] for name in rows[0]} | many_columns
    for path in output:
        with failures.collect(path):
            if path in pages:
                from inbedder.grouping.report.page import save_report

                tables, timelines = cross_tabulation.tables, cross_tabulation.timelines
                save_report(
                    groupings,
                    path,
                    title=choose_title(title, source),
                    cross_tables=tables,
                    timelines=timelines,
                    numbers=table.rows,
                )
            else:
                from inbedder.io.outputs import write_records

                write_records(table.with_columns(columns), path, guard_cells=guard_cells)
            print_message(f"Written: {path}")
    failures.raise_all()


def _load_rules(into: Sequence[str], codebook: Path | None, instruction: str | None, model: str | None) -> Codebook:
    """Load the codebook, or make one of the categories and the question."""
    from inbedder.classification.codebook import Code, Codebook

    if (codebook is None) == (not into):
        raise typer.BadParameter("give either categories or a codebook.", param_hint="--into, --codebook")
    if codebook is None:
        codes = [Code(category.name, category.description, category.examples) for category in _parse_into(into)]
        return Codebook(instruction, codes, model or "mini")
    if instruction is not None:
        raise typer.BadParameter("the codebook has its question. Leave it out, or change it in the file.", param_hint="-i")
    return Codebook.load(codebook)


def _parse_into(values: Sequence[str]) -> list[Category]:
    """Read the categories of all files and names."""
    from inbedder.classification.categories import Category, parse_categories, read_categories
    from inbedder.errors import InputError

    categories: list[Category] = []
    for value in values:
        is_file = Path(value).suffix.lower() in (*TABLE_TYPES, ".txt")
        categories += read_categories(Path(value).expanduser()) if is_file else [Category(value)]
    try:
        return parse_categories(categories)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--into") from error


def _print_categories(result: Classification) -> None:
    """Print the number of texts in each category, and what the labelled rows say."""
    from inbedder.errors import format_count
    from inbedder.grouping.grouped_texts import LEFT_OUT

    print_message(result.instruction or "(no question)")
    print_message("    texts  category")
    for name, count in result.count_texts().items():
        print_message(f"  {count:7d}  {name}")
    if result.min_score is not None:
        print_message(f"  {result.describe_left_out()}")
    if result.min_lead is not None:
        print_message(f"  {result.describe_unsure()}")
    if result.agreement is not None and result.agreement.count:
        print_message(f"  {_describe_accuracy(result.agreement)}")
    if result.agreement is not None and result.agreement.other_count:
        count, left_out = result.agreement.other_count, result.agreement.left_out_count
        outcome = f"{left_out} of them got no category" if left_out or result.min_score is not None else "allow it with --other"
        print_message(f"  Labels of {format_count(count, 'text')} are none of the categories, so {LEFT_OUT!r}: {outcome}.")
    if result.temperature is None:
        print_message(
            "  The probabilities are not calibrated. Give 20 or more known categories (--label-column) to calibrate them."
        )
    if not any(category.examples for category in result.categories):
        print_message(f"  {EXAMPLES_ADVICE}")


def _make_many_columns(result: Classification, max_gap: float | None) -> dict[str, list[Any]]:
    """Make the columns of all categories of each text, and print the share of the texts that have each."""
    columns = result.make_columns(*([] if max_gap is None else [max_gap]))
    members = [row for name, row in columns.items() if name != "categories"]
    total = len(result.texts)
    print_message("All categories of each text:")
    for category, row in zip(result.categories, members, strict=True):
        print_message(f"  {sum(row):7d}  {sum(row) / total:4.0%}  {category.name}")
    print_message(f"  {sum(map(sum, members)) / total:.2f} categories per text.")
    return columns


def _describe_accuracy(agreement: LabelledRows) -> str:
    """Describe the accuracy on all labelled rows, and on those that got a category."""
    sentence = f"{agreement.accuracy:.0%} of {agreement.count} labelled texts are in their known category"
    count = agreement.categorized_count
    if count == agreement.count:
        return f"{sentence}."
    if not count:
        return f"{sentence}: none of them got a category."
    outcome = f"{agreement.categorized_accuracy:.0%} of the {count} that got a category"
    return f"{sentence}: {outcome}; {agreement.count - count} got none."
