"""Groupings as the command line gives them: the user's own table with the groups, the page, and lines in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inbedder.cli.shared_options import say

if TYPE_CHECKING:
    from inbedder.cli.crosstab_tables import Crossing
    from inbedder.grouping.explain import LabelAgreement
    from inbedder.grouping.result import ClusterResult
    from inbedder.io.tables import Table

MOST_LABELS = 3
"""Labels of a group that the terminal shows."""


def write_groups(
    results: Sequence[ClusterResult], table: Table, crossing: Crossing, output: Sequence[Path], guard_cells: bool
) -> None:
    """Write the page, and the table as it was read with the columns of ``group_columns`` behind its own; say what was found."""
    from inbedder.grouping.grouped_texts import group_columns
    from inbedder.grouping.report.page import save_report
    from inbedder.io.outputs import write_records

    pages = [path for path in output if path.suffix.lower() == ".html"]
    for path in pages:
        save_report(results, path, crossings=crossing.tables, timelines=crossing.timelines, numbers=table.rows)
    tables = [path for path in output if path not in pages]
    rows = table.with_columns(group_columns(results)) if tables else []
    for path in tables:
        write_records(rows, path, guard_cells=guard_cells)
    _say_groups(results)
    if tables and table.unparsed:
        say(f"Not in the written table, since they could not be read: {table.unparsed} rows.")
    say(f"Written: {', '.join(str(path) for path in output)}")


def _say_groups(results: Sequence[ClusterResult]) -> None:
    """Show number, size and name of each group, how the groups relate to known labels, and what else should be known."""
    from inbedder.grouping.deduplicate import describe_duplicate_questions
    from inbedder.grouping.stability import describe_stability

    for result in results:
        say(" / ".join(result.wordings or [result.instruction]))
        say("  group   texts  name")
        for number, (name, size, stability) in enumerate(
            zip(result.names, result.sizes, result.stability or (), strict=True), start=1
        ):
            shaky = describe_stability(stability) == "shaky" and number - 1 != result.left_out
            say(f"  {_number(result, number)} {size:7d}  {name}" + (f"  (shaky: {stability:.2f})" if shaky else ""))
        if result.choice is not None:
            say(f"  {result.choice}")
        for column, agreement in result.label_agreements.items():
            _say_agreement(column, agreement, result)
        for note in result.notes:
            say(f"  {note}")
    for note in describe_duplicate_questions(results):
        say(note)


def _number(result: ClusterResult, number: int) -> str:
    """Number of a group as the written table has it: none of the texts that fit no group."""
    return " " * 5 if number - 1 == result.left_out else f"{number:5d}"


def _say_agreement(column: str, agreement: LabelAgreement, result: ClusterResult) -> None:
    from inbedder.grouping.explain import NO_LABEL

    if agreement.unlabelled == len(result.texts):
        say(f"  No text has a label in column {column!r}.")
        return
    left_out = f"; {agreement.unlabelled} texts without a label are left out" if agreement.unlabelled else ""
    say(f"  Column {column!r}: V-measure {agreement.v_measure:.2f} (0: unrelated to the groups, 1: the same){left_out}")
    for number, counts in enumerate(agreement.composition, start=1):
        labels = {label: count for label, count in counts.items() if label != NO_LABEL}
        total = max(1, sum(labels.values()))
        shares = [f"{label} {count / total:.0%}" for label, count in list(labels.items())[:MOST_LABELS]]
        more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
        say(f"  {_number(result, number)}  {', '.join(shares) or NO_LABEL}{more}")
