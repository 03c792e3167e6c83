"""The one reader of tables: csv, tsv, jsonl, json, plain text (each also compressed by gzip), parquet, xlsx, standard input."""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.columns import LINE_COLUMN, MAX_INSPECTED_ROWS, find_text_columns, list_columns, read_text
from inbedder.io.formats import DELIMITER_NOTE, BadRow, Record, get_file_type, iterate_rows

READABLE_TYPES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx", ".txt")


@dataclass(frozen=True)
class Table:
    """The rows that can be used, and how many could not."""

    texts: list[str]
    """The text of each row."""
    records: list[Record]
    """The whole rows, as read."""
    rows: list[int]
    """Row number of each text in the file, from 1, the header not counted."""
    text_columns: list[str]
    """The columns of the texts, asked for or guessed."""
    skipped: int
    """Bad rows that were left out."""
    parsed: list[tuple[int, Record]]
    """All rows that could be parsed, those without a text too, each behind its number."""

    @property
    def unparsed(self) -> int:
        """Bad rows of which not even the cells are known."""
        return self.skipped - (len(self.parsed) - len(self.texts))

    def column(self, name: str) -> list[Any]:
        """Values of one column.

        Args:
            name: The column.

        Returns:
            One value per text.

        Raises:
            InputError: When there is no such column.
        """
        columns = list_columns(self.records)
        if name not in columns:
            raise InputError(f"No column {format_value(name)}. The columns are: {format_names(columns)}.")
        return [record.get(name) for record in self.records]

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> list[Record]:
        """The table as it was read, with more columns behind its own.

        Args:
            columns: Name and values, one per text. A name that the table has already gets a number behind it.

        Returns:
            One row per parsed row, in their order, all with the same columns; rows without a text have None in the new ones.
        """
        own = list_columns([record for _, record in self.parsed])
        taken, names = set(own), []
        for name in columns:
            free = next(other for i in count(1) if (other := name if i == 1 else f"{name}_{i}") not in taken)
            names.append(free)
            taken.add(free)
        added = dict(zip(self.rows, zip(*columns.values(), strict=True), strict=True))
        nothing = (None,) * len(names)
        return [
            {name: record.get(name) for name in own} | dict(zip(names, added.get(number, nothing), strict=True))
            for number, record in self.parsed
        ]


def read_table(
    source: str, text_column: str | Sequence[str] | None = None, *, skip_bad: bool = False, delimiter: str | None = None
) -> Table:
    """Read texts with their rows.

    Args:
        source: A file (.csv .tsv .jsonl .json .txt, also compressed by gzip, .parquet or the first sheet of an .xlsx), or "-" for
            one text per line on standard input. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark; cells of a .csv are
            set apart by commas, semicolons, tabs or bars, whichever fits header and first rows best.
        text_column: The column that holds the texts, or several, whose cells are joined by line breaks. None takes the one called
            "text", or else the only one that contains text, if no other is empty.
        skip_bad: Leave out rows without a text or that cannot be parsed, instead of stopping at the first.
        delimiter: What stands between the cells of a .csv or .tsv; None finds it.

    Returns:
        The table.

    Raises:
        InputError: When the file, its type, a row or the column is not what it should be; the message says which.
    """
    parsed, bad = _parse(source, delimiter)
    if bad and not skip_bad:
        raise _make_row_error(source, *bad[0])
    if not parsed:
        raise InputError(f"{format_value(source)} holds no rows{' that can be read' if bad else ''}.")
    columns = find_text_columns([record for _, record in parsed], LINE_COLUMN if _is_plain(source) else text_column)
    found = [read_text(record, columns) for _, record in parsed]
    good = [i for i, (_, reason) in enumerate(found) if reason is None]
    if len(good) < len(parsed) and not skip_bad:
        first = next(i for i, (_, reason) in enumerate(found) if reason is not None)
        raise _make_row_error(source, parsed[first][0], str(found[first][1]))
    if not good:
        raise InputError(f"{format_value(source)}: no row has a text in column {format_names(columns)}.")
    return Table(
        texts=[found[i][0] for i in good],
        records=[parsed[i][1] for i in good],
        rows=[parsed[i][0] for i in good],
        text_columns=columns,
        skipped=len(bad) + len(parsed) - len(good),
        parsed=parsed,
    )


def _make_row_error(source: str, number: int, reason: str) -> InputError:
    other = " If something else stands between the cells, name it with --delimiter." if DELIMITER_NOTE in reason else ""
    return InputError(
        f"{format_value(source)}, row {number}: {reason} Mend the row, or leave out such rows with --skip-bad.{other}"
    )


def _is_plain(source: str) -> bool:
    return source == "-" or get_file_type(Path(source)) == ".txt"


def _parse(source: str, delimiter: str | None) -> tuple[list[tuple[int, Record]], list[tuple[int, str]]]:
    """Rows that parse and rows that do not, each with its number."""
    parsed: list[tuple[int, Record]] = []
    bad: list[tuple[int, str]] = []
    for number, row in stream_rows(source, delimiter=delimiter):
        if isinstance(row, BadRow):
            bad.append((number, str(row)))
        else:
            parsed.append((number, row))
    return parsed, bad


def stream_rows(
    source: str, columns: Sequence[str] | None = None, *, delimiter: str | None = None
) -> Iterator[tuple[int, Record | BadRow]]:
    """Read a table row by row, so that memory does not grow with it.

    Args:
        source: As for ``read_table``.
        columns: The columns that are needed; a parquet file then reads no other.
        delimiter: As for ``read_table``.

    Yields:
        The row's number in the file, from 1, and the row, or why it cannot be read.

    Raises:
        InputError: When the file or its type is not what it should be.
    """
    kind, name = get_file_type(Path(source)), format_value(source)
    if source != "-" and kind not in READABLE_TYPES:
        readable = f"{' '.join(READABLE_TYPES)} (texts also as .gz)"
        raise InputError(f"{name}: unknown file type {format_value(kind)}. Give one of {readable}, or - for lines on stdin.")
    try:
        yield from iterate_rows(source, columns, delimiter)
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
    text_columns: list[str]
    """The columns of the texts."""
    count: int
    """How many texts there are."""
    skipped: int
    """Bad rows that are left out."""
    delimiter: str | None = None
    """What stands between the cells of a .csv; None finds it."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Read the file anew.

        Yields:
            Each text behind its row number in the file, from 1.

        Raises:
            InputError: When the file gives other rows than before.
        """
        found = 0
        for number, row in stream_rows(self.source, self.text_columns, delimiter=self.delimiter):
            text, reason = ("", "") if isinstance(row, BadRow) else read_text(row, self.text_columns)
            if reason is None:
                found += 1
                yield number, text
        if found != self.count:
            raise InputError(f"{format_value(self.source)} changed while it was read. Run again when nobody writes to it.")


@contextmanager
def open_texts(
    source: str, text_column: str | Sequence[str] | None = None, *, skip_bad: bool = False, delimiter: str | None = None
) -> Iterator[TextStream]:
    """Read a table once to find out whether all of it can be used, and keep none of it.

    Args:
        source: As for ``read_table``; standard input is copied to a temporary file.
        text_column: As for ``read_table``.
        skip_bad: As for ``read_table``.
        delimiter: As for ``read_table``.

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
        columns = find_columns(path, text_column, name=source, delimiter=delimiter)
        texts = skipped = 0
        for number, row in stream_rows(path, columns, delimiter=delimiter):
            reason = str(row) if isinstance(row, BadRow) else read_text(row, columns)[1]
            if reason is not None and not skip_bad:
                raise _make_row_error(source, number, reason)
            texts, skipped = texts + (reason is None), skipped + (reason is not None)
        if not texts:
            raise InputError(f"{format_value(source)}: no row has a text in column {format_names(columns)}.")
        yield TextStream(path, columns, texts, skipped, delimiter)


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
            raise InputError(f"{format_value(source)}, row {number}: {row}")
        rows.append(row)
    return rows


def find_columns(
    source: str,
    text_column: str | Sequence[str] | None,
    id_column: str | None = None,
    *,
    name: str | None = None,
    delimiter: str | None = None,
) -> list[str]:
    """Find the columns of the texts from the first rows alone.

    Args:
        source: A file.
        text_column: The column or columns asked for; None guesses one.
        id_column: A column that has to be there too.
        name: What messages call the source, if not by its own name.
        delimiter: As for ``read_table``.

    Returns:
        The names of the texts' columns.

    Raises:
        InputError: When there is no such column, or no row.
    """
    rows = islice(stream_rows(source, delimiter=delimiter), MAX_INSPECTED_ROWS)
    head = [row for _, row in rows if not isinstance(row, BadRow)]
    if not head:
        raise InputError(f"{format_value(name or source)} holds no rows.")
    if id_column is not None and id_column not in list_columns(head):
        names = format_names(list_columns(head))
        raise InputError(f"No column {format_value(id_column)}. The columns are: {names}. Name one with --id-column.")
    return find_text_columns(head, LINE_COLUMN if _is_plain(source) else text_column)
