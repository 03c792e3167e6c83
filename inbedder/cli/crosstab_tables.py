"""Groups crossed with each other, with columns and with time, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inbedder.cli.shared_options import CONTROLS, say

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from inbedder.grouping.crosstab import CrossTable
    from inbedder.grouping.over_time import OverTime
    from inbedder.grouping.result import ClusterResult
    from inbedder.io.tables import Table

CROSSING = "Crossing"
MOST_COLUMNS = 12
STRONGEST = 12
"""Of a wider table, so many cells are shown."""

By = Annotated[
    list[str] | None,
    typer.Option(
        "--by", help="A column to cross the groups with, such as stars or country; may repeat.", rich_help_panel=CROSSING
    ),
]
Over = Annotated[
    str | None,
    typer.Option("--over", help="A column of dates: the share of each group over time.", rich_help_panel=CROSSING),
]
Every = Annotated[str, typer.Option(help="With --over: per day, week, month or auto.", rich_help_panel=CROSSING)]
DateFormat = Annotated[
    str | None,
    typer.Option(
        help="With --over: how dates are written, such as %d/%m/%Y; found out where it can be.", rich_help_panel=CROSSING
    ),
]


class Crossing:
    """What the groups are crossed with: read before the model runs, shown after it."""

    tables: Sequence[CrossTable] = ()
    timelines: Sequence[OverTime] = ()

    def __init__(self, table: Table, by: Sequence[str], over: str | None, every: str, date_format: str | None) -> None:
        """Read the columns.

        Args:
            table: The texts' table.
            by: Columns to cross with.
            over: The column of dates, or None.
            every: The length of a period.
            date_format: How dates are written, or None.

        Raises:
            BadParameter: When a setting of time is given without a column of dates.
            InputError: When a column is missing, is no column of dates, or has too many values to cross.
        """
        if over is None and (every != "auto" or date_format is not None):
            raise typer.BadParameter("they are for --over.", param_hint="--every, --date-format")
        self.columns = {name: table.column(name) for name in by}
        self.over, self.every = over or "date", every
        self.days: list[Any] | None = None
        if by:
            from inbedder.grouping.crosstab import categorize_values

            for name, values in self.columns.items():
                categorize_values(name, values, len(table.texts))
        if over is not None:
            from inbedder.grouping.dates import calendar, parse_dates

            self.days = list(parse_dates(table.column(over), date_format))
            self.every = calendar(self.days, every).every

    def cross(self, results: Sequence[ClusterResult]) -> None:
        """Count, once the groups are there.

        Args:
            results: A grouping per question.
        """
        if len(results) > 1 or self.columns:
            from inbedder.grouping.crosstab import crosstab

            self.tables = crosstab(results, self.columns)
        if self.days is not None:
            from inbedder.grouping.over_time import over_time

            self.timelines = over_time(results, self.days, self.every, title=self.over)

    def show(self) -> None:
        """Print the tables."""
        for table in self.tables:
            strength = f"{table.total:,} texts, Cramer's V {table.cramers_v:.2f}"
            wide = len(table.columns.names) > MOST_COLUMNS
            _print(f"{table.rows.title} x {table.columns.title} ({strength})", _strongest(table) if wide else _grid(table))
        if self.tables:
            say("Texts and share of the row; + more, - fewer than chance explains (5% false discoveries).")
        for timeline in self.timelines:
            _print(f"{timeline.table.rows.title} per {timeline.calendar.every} of {self.over}", _shares(timeline))
            _print(f"First to last {timeline.calendar.every}, on a line through all of them", _changes(timeline))
        if self.timelines:
            undated = self.timelines[0].undated
            say("Rising or falling is what changes by more than chance (a linear trend, 5% false discoveries).")
            say(f"{undated} texts have no date." if undated else "Every text has a date.")


def _grid(table: CrossTable) -> Grid:
    """The whole table."""
    grid = _empty("", *table.columns.names)
    for name, *cells in zip(table.rows.names, table.counts, table.shares, table.differs, strict=True):
        lines = [f"{' +-'[sign]} {count} {share:4.0%}" for count, share, sign in zip(*cells, strict=True)]
        grid.add_row(_text(name), *map(_text, lines))
    return grid


def _strongest(table: CrossTable) -> Grid:
    """The cells that differ most from chance."""
    grid = _empty(f"strongest of {table.counts.size:,} cells", "", "texts", "share", "lift", "residual", "")
    order = sorted(((i, j) for i, j in zip(*table.differs.nonzero(), strict=True)), key=lambda cell: -abs(table.residuals[cell]))
    for i, j in order[:STRONGEST]:
        numbers = f"{table.counts[i, j]}", f"{table.shares[i, j]:.0%}", f"{table.lift[i, j]:.2f}", f"{table.residuals[i, j]:+.1f}"
        names = table.rows.names[i], table.columns.names[j]
        grid.add_row(*map(_text, (*names, *numbers, " +-"[table.differs[i, j]])))
    return grid


def _shares(timeline: OverTime) -> Grid:
    """The share of each group in each of the last periods."""
    grid = _empty("", *timeline.calendar.names[-MOST_COLUMNS:])
    for name, shares in zip(timeline.table.rows.names, timeline.shares[:, -MOST_COLUMNS:].tolist(), strict=True):
        grid.add_row(_text(name), *(_text("-" if share != share else f"{share:.0%}") for share in shares))
    return grid


def _changes(timeline: OverTime) -> Grid:
    """The first and last share of each group, and whether that is a change."""
    names = timeline.calendar.names
    grid = _empty("", "texts", names[0], names[-1], "", "")
    for name, counts, change in zip(timeline.table.rows.names, timeline.table.counts, timeline.changes, strict=True):
        shares = f"{change.first:.1%}", f"{change.last:.1%}"
        rate = "" if change.direction == "steady" else f"q = {change.false_discovery_rate:.2g}"
        grid.add_row(*map(_text, (name, str(counts.sum()), *shares, change.direction, rate)))
    return grid


def _empty(*headers: str) -> Grid:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, header in enumerate(headers):
        numeric = i and len(headers) > 1
        grid.add_column(
            _text(header), justify="right" if numeric else "left", overflow="ellipsis" if i else "fold", max_width=16 if i else 40
        )
    return grid


def _text(value: str) -> Any:
    """Text that is neither markup nor an order to the terminal."""
    from rich.text import Text

    return Text(value.translate(CONTROLS))


def _print(title: str, grid: Grid) -> None:
    """Print a table as wide as it is."""
    from rich.console import Console

    console = Console(width=1000, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(_text(title))
        console.print(grid)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")
