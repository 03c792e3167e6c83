"""Cross tables and timelines of groups in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.shared_options import CONTROL_ESCAPES, print_message, print_result

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from inbedder.grouping.compare.crosstab import CrossTable
    from inbedder.grouping.compare.timelines import Timeline
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.io.tables import Table

TIME = "Time"
MAX_COLUMNS = 12
"""Maximum number of columns of a table that is printed in full, and of periods printed."""
MAX_STRONGEST_CELLS = 12
"""Maximum number of cells printed of a wider table."""


@dataclass(frozen=True)
class CrossTabOptions:
    """The options of cross tables and timelines."""

    by: Annotated[
        list[str] | None, typer.Option("--by", help="Column to cross-tabulate with the groups, such as stars; repeatable.")
    ] = None
    over: Annotated[str | None, typer.Option("--over", help="Column of dates to show the groups over time.")] = None
    every: Annotated[str, typer.Option(help="Period of --over: day, week, month or auto.", rich_help_panel=TIME)] = "auto"
    date_format: Annotated[
        str | None, typer.Option(help="Format of the dates, such as %d/%m/%Y; default: detected.", rich_help_panel=TIME)
    ] = None


class CrossTabulation:
    """The columns to cross-tabulate with the groups, read before the model runs, and the resulting tables."""

    tables: Sequence[CrossTable] = ()
    timelines: Sequence[Timeline] = ()

    def __init__(self, table: Table, options: CrossTabOptions) -> None:
        """Read the columns of a table; refuse missing ones, those without dates, and options of time without ``over``."""
        by, over, every, date_format = options.by or [], options.over, options.every, options.date_format
        if over is None and (every != "auto" or date_format is not None):
            raise typer.BadParameter("these options need --over.", param_hint="--every, --date-format")
        self.columns = {name: table.column(name) for name in by}
        self.over, self.every = over or "date", every
        self.days: list[Any] | None = None
        if by:
            from inbedder.grouping.compare.crosstab import categorize_values

            for name, values in self.columns.items():
                categorize_values(name, values, len(table.texts))
        if over is not None:
            from inbedder.grouping.compare.dates import make_calendar, parse_dates

            self.days = list(parse_dates(table.column(over), date_format))
            self.every = make_calendar(self.days, every).every

    def compute(self, results: Sequence[GroupedTexts]) -> None:
        """Make the cross tables and timelines of groupings.

        Args:
            results: One grouping per question.
        """
        if len(results) > 1 or self.columns:
            from inbedder.grouping.compare.crosstab import crosstab

            self.tables = crosstab(results, self.columns)
        if self.days is not None:
            from inbedder.grouping.compare.timelines import make_timelines

            self.timelines = make_timelines(results, self.days, self.every, title=self.over)

    def print_tables(self) -> None:
        """Print the cross tables and timelines."""
        for table in self.tables:
            strength = f"{table.total:,} texts; {table.verdict}; Cramer's V {table.cramers_v:.2f}"
            is_wide = len(table.columns.names) > MAX_COLUMNS
            _print_table(
                f"{table.rows.title} x {table.columns.title} ({strength})",
                _build_strongest_cells(table) if is_wide else _build_full_table(table),
            )
        if self.tables:
            print_message(
                "Texts and their share of the row; + significantly more, - significantly fewer (false discovery rate 5%)."
            )
        for timeline in self.timelines:
            _print_table(f"{timeline.table.rows.title} per {timeline.calendar.every} of {self.over}", _build_shares(timeline))
            _print_table("First to last day on the fitted line", _build_changes(timeline))
        if self.timelines:
            calendar, undated_count = self.timelines[0].calendar, self.timelines[0].undated_count
            if len(calendar.starts) > MAX_COLUMNS:
                hidden = f"Only the last {MAX_COLUMNS} of {len(calendar.starts)} {calendar.every}s are printed"
                print_message(f"{hidden}; the .html report shows all, and the fitted line is that of all.")
            print_message("Rising and falling groups have a significant linear trend (false discovery rate 5%).")
            print_message(f"{undated_count} texts have no date." if undated_count else "Every text has a date.")


def _build_full_table(table: CrossTable) -> Grid:
    """Build a table of all cells."""
    grid = _make_empty_table("", *table.columns.marked_names)
    for name, *cells in zip(table.rows.marked_names, table.counts, table.shares, table.differs, strict=True):
        lines = [f"{' +-'[sign]} {count} {share:4.0%}" for count, share, sign in zip(*cells, strict=True)]
        grid.add_row(_make_text(name), *map(_make_text, lines))
    return grid


def _build_strongest_cells(table: CrossTable) -> Grid:
    """Build a table of the most significant cells."""
    grid = _make_empty_table(f"strongest of {table.counts.size:,} cells", "", "texts", "share", "lift", "residual", "")
    order = sorted(((i, j) for i, j in zip(*table.differs.nonzero(), strict=True)), key=lambda cell: -abs(table.residuals[cell]))
    for i, j in order[:MAX_STRONGEST_CELLS]:
        numbers = f"{table.counts[i, j]}", f"{table.shares[i, j]:.0%}", f"{table.lift[i, j]:.2f}", f"{table.residuals[i, j]:+.1f}"
        names = table.rows.marked_names[i], table.columns.marked_names[j]
        grid.add_row(*map(_make_text, (*names, *numbers, " +-"[table.differs[i, j]])))
    return grid


def _build_shares(timeline: Timeline) -> Grid:
    """Build a table of the share of each group in the last periods."""
    grid = _make_empty_table("", *timeline.calendar.names[-MAX_COLUMNS:])
    for name, shares in zip(timeline.table.rows.marked_names, timeline.shares[:, -MAX_COLUMNS:].tolist(), strict=True):
        grid.add_row(_make_text(name), *(_make_text("-" if math.isnan(share) else f"{share:.0%}") for share in shares))
    return grid


def _build_changes(timeline: Timeline) -> Grid:
    """Build a table of the first and last share of each group, and the direction of the change."""
    grid = _make_empty_table("", "texts", "first day", "last day", "", "")
    for name, counts, change in zip(timeline.table.rows.marked_names, timeline.table.counts, timeline.changes, strict=True):
        shares = f"{change.first:.1%}", f"{change.last:.1%}"
        rate = "" if change.direction == "no clear change" else f"q = {change.false_discovery_rate:.2g}"
        grid.add_row(*map(_make_text, (name, str(counts.sum()), *shares, change.direction, rate)))
    return grid


def _make_empty_table(*headers: str) -> Grid:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, header in enumerate(headers):
        is_numeric = i and len(headers) > 1
        grid.add_column(
            _make_text(header),
            justify="right" if is_numeric else "left",
            overflow="ellipsis" if i else "fold",
            max_width=16 if i else 40,
        )
    return grid


def _make_text(value: str) -> Any:
    """Make a text without markup and control characters."""
    from rich.text import Text

    return Text(value.translate(CONTROL_ESCAPES))


def _print_table(title: str, grid: Grid) -> None:
    """Print a table in its full width."""
    from rich.console import Console

    console = Console(width=1000, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(_make_text(title))
        console.print(grid)
    print_result("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")
