"""The one reader of tables: csv, tsv, jsonl, json, plain text (each also compressed by gzip), parquet, and standard input."""

from __future__ import annotations

import math
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from inbedder.errors import InputError, shown, shown_names
from inbedder.formats import LINE_COLUMN, BadRow, Record, kind_of, rows_of

READABLE = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt")
GUESSED_FROM = 1000
"""Rows that are looked at to find the column of the texts."""


@dataclass(frozen=True)
class Table:
    """The rows that can be used, and how many could not."""

    texts: list[str]
    """The text of each row."""
    records: list[Record]
    """The whole rows, as read."""
    rows: list[int]
    """Row number of each text in the file, from 1, the header not counted."""
    text_column: str
    """The column of the texts, asked for or guessed."""
    skipped: int
    """Bad rows that were left out."""

    def column(self, name: str) -> list[Any]:
        """Values of one column.

        Args:
            name: The column.

        Returns:
            One value per text.

        Raises:
            InputError: When there is no such column.
        """
        columns = _columns(self.records)
        if name not in columns:
            raise InputError(f"No column {shown(name)}. The columns are: {shown_names(columns)}.")
        return [record.get(name) for record in self.records]


def read_table(source: str, text_column: str | None = None, *, skip_bad: bool = False) -> Table:
    """Read texts with their rows.

    Args:
        source: A file (.csv .tsv .jsonl .json .txt, also compressed by gzip, or .parquet), or "-" for one text per line on
            standard input. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark; cells of a .csv are set apart by commas,
            semicolons, tabs or bars, whichever fits header and first rows best.
        text_column: The column that holds the texts. None takes the one called "text", or else the only one that contains text,
            if no other is empty.
        skip_bad: Leave out rows without a text or that cannot be parsed, instead of stopping at the first.

    Returns:
        The table.

    Raises:
        InputError: When the file, its type, a row or the column is not what it should be; the message says which.
    """
    parsed, bad = _parse(source)
    if bad and not skip_bad:
        raise _bad_row(source, *bad[0])
    if not parsed:
        raise InputError(f"{shown(source)} holds no rows{' that can be read' if bad else ''}.")
    plain = source == "-" or kind_of(Path(source)) == ".txt"
    column = _text_column([record for _, record in parsed], LINE_COLUMN if plain else text_column)
    reasons = [why_no_text(record.get(column)) for _, record in parsed]
    good = [entry for entry, reason in zip(parsed, reasons, strict=True) if reason is None]
    if len(good) < len(parsed) and not skip_bad:
        first = next(i for i, reason in enumerate(reasons) if reason is not None)
        raise _bad_row(source, parsed[first][0], f"column {shown(column)} {reasons[first]}.")
    if not good:
        raise InputError(f"{shown(source)}: no row has a text in column {shown(column)}.")
    return Table(
        texts=[str(record[column]) for _, record in good],
        records=[record for _, record in good],
        rows=[number for number, _ in good],
        text_column=column,
        skipped=len(bad) + len(parsed) - len(good),
    )


def _bad_row(source: str, number: int, reason: str) -> InputError:
    return InputError(f"{shown(source)}, row {number}: {reason} Mend the row, or leave out such rows with --skip-bad.")


def _parse(source: str) -> tuple[list[tuple[int, Record]], list[tuple[int, str]]]:
    """Rows that parse and rows that do not, each with its number."""
    parsed: list[tuple[int, Record]] = []
    bad: list[tuple[int, str]] = []
    for number, row in stream_rows(source):
        if isinstance(row, BadRow):
            bad.append((number, str(row)))
        else:
            parsed.append((number, row))
    return parsed, bad


def stream_rows(source: str, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Record | BadRow]]:
    """Read a table row by row, so that memory does not grow with it.

    Args:
        source: As for ``read_table``.
        columns: The columns that are needed; a parquet file then reads no other.

    Yields:
        The row's number in the file, from 1, and the row, or why it cannot be read.

    Raises:
        InputError: When the file or its type is not what it should be.
    """
    kind, name = kind_of(Path(source)), shown(source)
    if source != "-" and kind not in READABLE:
        readable = f"{' '.join(READABLE)} (texts also as .gz)"
        raise InputError(f"{name}: unknown file type {shown(kind)}. Give one of {readable}, or - for lines on stdin.")
    try:
        yield from rows_of(source, columns)
    except UnicodeDecodeError as error:
        if not error.encoding.startswith("utf-8"):
            raise InputError(f"{name} begins as {error.encoding} text does but is damaged ({error.reason}).") from error
        raise InputError(f"{name} is not UTF-8 text. Convert it first: iconv -f latin1 -t utf-8 {name}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {name}: {getattr(error, 'strerror', None) or error}.") from error


@dataclass(frozen=True)
class TextStream:
    """The texts of a table, read row by row each time that they are asked for, so that memory does not grow with them."""

    source: str
    """The file."""
    text_column: str
    """The column of the texts."""
    count: int
    """How many texts there are."""
    skipped: int
    """Bad rows that are left out."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Read the file anew.

        Yields:
            Each text behind its row number in the file, from 1.

        Raises:
            InputError: When the file gives other rows than before.
        """
        found = 0
        for number, row in stream_rows(self.source, [self.text_column]):
            if not isinstance(row, BadRow) and why_no_text(row.get(self.text_column)) is None:
                found += 1
                yield number, str(row[self.text_column])
        if found != self.count:
            raise InputError(f"{shown(self.source)} changed while it was read. Run again when nobody writes to it.")


@contextmanager
def open_texts(source: str, text_column: str | None = None, *, skip_bad: bool = False) -> Iterator[TextStream]:
    """Read a table once to find out whether all of it can be used, and keep none of it.

    Args:
        source: As for ``read_table``; standard input is copied to a temporary file.
        text_column: As for ``read_table``.
        skip_bad: As for ``read_table``.

    Yields:
        The texts; standard input's are there within the block alone.

    Raises:
        InputError: As ``read_table`` does.
    """
    with ExitStack() as stack:
        path = source
        if source == "-":
            copy = stack.enter_context(NamedTemporaryFile(suffix=".txt"))
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
            path = copy.name
        column = find_columns(path, text_column, name=source)
        count = skipped = 0
        for number, row in stream_rows(path, [column]):
            reason = str(row) if isinstance(row, BadRow) else why_no_text(row.get(column))
            if reason is not None and not skip_bad:
                raise _bad_row(source, number, reason if isinstance(row, BadRow) else f"column {shown(column)} {reason}.")
            count, skipped = count + (reason is None), skipped + (reason is not None)
        if not count:
            raise InputError(f"{shown(source)}: no row has a text in column {shown(column)}.")
        yield TextStream(path, column, count, skipped)


def read_rows(source: str) -> list[Record]:
    """Read all rows of a table that has to be whole.

    Args:
        source: As for ``read_table``.

    Returns:
        The rows.

    Raises:
        InputError: When the file cannot be read or a row of it cannot be parsed.
    """
    rows: list[Record] = []
    for number, row in stream_rows(source):
        if isinstance(row, BadRow):
            raise InputError(f"{shown(source)}, row {number}: {row}")
        rows.append(row)
    return rows


def find_columns(source: str, text_column: str | None, id_column: str | None = None, *, name: str | None = None) -> str:
    """Find the column of the texts from the first rows alone.

    Args:
        source: A file.
        text_column: The column asked for; None guesses.
        id_column: A column that has to be there too.
        name: What messages call the source, if not by its own name.

    Returns:
        The name of the texts' column.

    Raises:
        InputError: When there is no such column, or no row.
    """
    head = [row for _, row in islice(stream_rows(source), GUESSED_FROM) if not isinstance(row, BadRow)]
    if not head:
        raise InputError(f"{shown(name or source)} holds no rows.")
    if id_column is not None and id_column not in _columns(head):
        names = shown_names(_columns(head))
        raise InputError(f"No column {shown(id_column)}. The columns are: {names}. Name one with --id-column.")
    return _text_column(head, LINE_COLUMN if kind_of(Path(source)) == ".txt" else text_column)


def why_no_text(value: Any) -> str | None:
    """Why a value is no text that can be embedded, or None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "is empty (NaN)"
    if isinstance(value, str):
        return None if value.strip() else "is empty"
    return f"is {shown(value)}, not text"


def _columns(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(str(name) for record in records for name in record))


def _text_column(records: Sequence[Record], wanted: str | None) -> str:
    columns = _columns(records)
    if wanted is not None and wanted not in columns:
        raise InputError(f"No column {shown(wanted)}. The columns are: {shown_names(columns)}. Name one with --text-column.")
    if wanted is not None:
        return wanted
    if LINE_COLUMN in columns:
        return LINE_COLUMN
    filled = {name: _filled(records, name) for name in columns}
    wordy = [name for name in columns if _mostly(filled[name], lambda value: any(letter.isalpha() for letter in value))]
    if len(wordy) > 1:
        several = [name for name in wordy if _mostly(filled[name], lambda value: " " in value.strip())]
        wordy = several if len(several) == 1 else wordy
    empty = [name for name in columns if name.strip() and not filled[name]]
    if len(wordy) == 1 and not empty:
        return wordy[0]
    if len(wordy) == 1:  # what is filled may be a label of the texts that are missing
        found = f"only {shown(wordy[0])} holds text, but the texts may belong to an empty column ({shown_names(empty)})"
    else:
        found = "several columns hold text" if wordy else "no column holds text"
    raise InputError(f"{found[0].upper()}{found[1:]}; the columns are: {shown_names(columns)}. Name one with --text-column.")


def _filled(records: Sequence[Record], name: str) -> list[Any]:
    """What the first rows hold in a column."""
    values = [record.get(name) for record in records[:GUESSED_FROM]]
    return [value for value in values if why_no_text(value) not in ("is empty (NaN)", "is empty")]


def _mostly(values: Sequence[Any], holds: Callable[[str], bool]) -> bool:
    return sum(isinstance(value, str) and holds(value) for value in values) > 0.5 * len(values)
