"""Output of groupings: the report, the user's table with the groups, and a summary in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.assign import save_groupings
from inbedder.cli.deferred_errors import DeferredErrors
from inbedder.cli.shared_options import print_message, print_stage
from inbedder.errors import format_count
from inbedder.runtime.timings import time_stage

if TYPE_CHECKING:
    from inbedder.cli.crosstab_tables import CrossTabulation
    from inbedder.embedder import InBedder
    from inbedder.grouping.clustering import ClusterResult
    from inbedder.grouping.document_parts import DocumentParts
    from inbedder.grouping.grouped_texts import LabelAgreement
    from inbedder.io.tables import Table

Title = Annotated[str | None, typer.Option(help="Title of the .html report; default: the name of the input.")]
LOOSE_HINT = "Compare with more groups and with fewer (-k), and with another wording (inbedder compare-wordings)."
"""What to try if groups are loose."""
MAX_LABELS = 3
"""Maximum number of labels per group in the terminal."""


def write_results(
    results: Sequence[ClusterResult],
    table: Table,
    cross_tabulation: CrossTabulation,
    output: Sequence[Path],
    save: Path | None,
    **options: Any,
) -> None:
    """Cross-tabulate groupings, write them with the options of ``write_groups``, print them and save them in a folder."""
    cross_tabulation.compute(results)
    print_stage("Writing.")
    failures = DeferredErrors()
    with time_stage("page"):
        write_groups(results, table, cross_tabulation, output, failures, **options)
    cross_tabulation.print_tables()
    if save is not None:
        with failures.collect(save):
            save_groupings(results, save)
    failures.raise_all()


def write_groups(
    results: Sequence[ClusterResult],
    table: Table,
    cross_tabulation: CrossTabulation,
    output: Sequence[Path],
    failures: DeferredErrors,
    *,
    title: str,
    guard_cells: bool,
    parts: DocumentParts | None = None,
    top: int = 1,
    atlas: Path | None = None,
    page_model: InBedder | None = None,
) -> None:
    """Write reports, tables and the map, and print the groups. A table is the input and columns of ``make_group_columns``."""
    from inbedder.grouping.document_parts import make_document_columns
    from inbedder.grouping.grouped_texts import make_group_columns
    from inbedder.grouping.report.page import save_report
    from inbedder.io.outputs import write_records

    pages = [path for path in output if path.suffix.lower() == ".html"]
    tables = [path for path in output if path not in pages]
    columns = make_group_columns(results, top) if parts is None else make_document_columns(results, parts)
    rows = table.with_columns(columns) if tables else []
    numbers = table.rows if parts is None else [table.rows[document] for document in parts.documents]
    written_paths = []
    for path in output:
        with failures.collect(path):
            if path in pages:
                cross_tables, timelines = cross_tabulation.tables, cross_tabulation.timelines
                tables_and_rows: dict[str, Any] = {
                    "cross_tables": cross_tables,
                    "timelines": timelines,
                    "numbers": numbers,
                    "parts": parts,
                    "page_model": page_model,
                }
                save_report(results, path, title=title, **tables_and_rows)
            else:
                write_records(rows, path, guard_cells=guard_cells)
            written_paths.append(path)
    _print_groups(results)
    if table.unparsed and not set(tables).isdisjoint(written_paths):
        print_message(f"The written table leaves out {format_count(table.unparsed, 'unreadable row')}.")
    if written_paths:
        print_message(f"Written: {', '.join(map(str, written_paths))}")
    if atlas is not None:
        with failures.collect(atlas):
            _write_atlas(results, table if parts is None else table.repeat_rows(parts.texts, parts.documents.tolist()), atlas)


def _write_atlas(results: Sequence[ClusterResult], table: Table, path: Path) -> None:
    """Write the map for embedding-atlas, and print the command that opens it, one per question."""
    from inbedder.grouping.report.atlas import make_atlas_rows
    from inbedder.io.outputs import write_records

    rows, options = make_atlas_rows(results, table.records)
    write_records(rows, path)
    print_message(f"Written: {path}")
    for line in options:
        print_message(f"Open the map: embedding-atlas {shlex.quote(str(path))} {line}")


def choose_title(title: str | None, source: str) -> str:
    """Choose the title of a report: the user's, or else the name of the input."""
    return title or ("Standard input" if source == "-" else Path(source).name)


def _print_groups(results: Sequence[ClusterResult]) -> None:
    """Print number, size and name of each group, the agreement with known labels, and notes."""
    from inbedder.grouping.describe.deduplicate import describe_duplicate_questions
    from inbedder.grouping.describe.loose_groups import LOOSE_MARK, LOOSE_NOTE, explain_loose_group

    has_loose_groups = False
    for result in results:
        print_message(" / ".join(result.wordings or [result.instruction]))
        print_message("  group   texts  name")
        for number, (name, size) in enumerate(zip(result.names, result.sizes, strict=True), start=1):
            is_loose = bool(explain_loose_group(result, number - 1))
            has_loose_groups |= is_loose
            print_message(f"  {_format_number(result, number)} {size:7d}  {name}" + f" {LOOSE_MARK}" * is_loose)
        if result.choice is not None:
            print_message(f"  {result.choice}")
        for column, agreement in result.label_agreements.items():
            _print_agreement(column, agreement, result)
        for note in result.notes:
            print_message(f"  {note}")
    if has_loose_groups:
        print_message(f"{LOOSE_NOTE} {LOOSE_HINT}")
    for note in describe_duplicate_questions(results):
        print_message(note)


def _format_number(result: ClusterResult, number: int) -> str:
    """Format the number of a group; the group of texts that fit none has no number."""
    return " " * 5 if number - 1 == result.left_out else f"{number:5d}"


def _print_agreement(column: str, agreement: LabelAgreement, result: ClusterResult) -> None:
    from inbedder.grouping.describe.explain import NO_LABEL

    if agreement.unlabelled == len(result.texts):
        print_message(f"  No text has a label in column {column!r}.")
        return
    left_out = f"; {agreement.unlabelled} texts have no label" if agreement.unlabelled else ""
    print_message(f"  Column {column!r}: V-measure {agreement.v_measure:.2f} (0: unrelated to the groups, 1: equal){left_out}")
    for number, counts in enumerate(agreement.composition, start=1):
        labels = {label: count for label, count in counts.items() if label != NO_LABEL}
        total = max(1, sum(labels.values()))
        shares = [f"{label} {count / total:.0%}" for label, count in list(labels.items())[:MAX_LABELS]]
        more = f" and {len(labels) - MAX_LABELS} more" if len(labels) > MAX_LABELS else ""
        print_message(f"  {_format_number(result, number)}  {', '.join(shares) or NO_LABEL}{more}")
