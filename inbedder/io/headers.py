"""The header of a table: the names of its columns, each of which occurs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from inbedder.errors import InputError, format_names
from inbedder.io.cell_values import is_blank
from inbedder.io.columns import Record


class Header:
    """The column names of a .csv or .xlsx file. A column without a name is called "column 3" by its position."""

    def __init__(self, cells: Iterable[Any], place: str) -> None:
        """Name the columns; reject two of the same name in a message about ``place``."""
        self.place = place
        self.names: list[str] = []
        self.unnamed: set[str] = set()
        self._add(cells)

    def _add(self, cells: Iterable[Any]) -> None:
        for number, cell in enumerate(cells, start=len(self.names) + 1):
            name = f"column {number}" if is_blank(cell) else str(cell)
            self.names.append(name)
            if is_blank(cell):
                self.unnamed.add(name)
        check_unique(self.names, self.place)

    def extend(self, count: int) -> None:
        """Add columns without a name until there are as many as ``count``."""
        if count > len(self.names):
            self._add([None] * (count - len(self.names)))

    def make_record(self, cells: Sequence[Any]) -> Record:
        """Make the record of a row with one cell per column, without the blank cells of columns without a name."""
        pairs = zip(self.names, cells, strict=True)
        if not self.unnamed:
            return dict(pairs)
        return {name: cell for name, cell in pairs if name not in self.unnamed or not is_blank(cell)}


def check_unique(names: Sequence[str], place: str) -> None:
    """Raise InputError if a name occurs twice."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"{place} contains {format_names(repeated)} twice. Give each column its own name.")
