"""Readers of tables: csv, tsv, jsonl, json, plain text (each also compressed with gzip), parquet, xlsx, standard input."""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.columns import LINE_COLUMN, MAX_INSPECTED_ROWS, Record, find_text_columns, list_columns, read_text
from inbedder.io.encodings import explain_undecodable
from inbedder.io.files import is_pipe
from inbedder.io.formats import DELIMITER_NOTE, BadRow, get_file_type, iterate_rows
from inbedder.io.traces import join_traces

READABLE_TYPES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx", ".txt")


@dataclass(frozen=True)
class Table:
    """The rows of a file that have a text, and the number of rows that have none."""

    texts: list[str]
    """The text of each row."""
    records: list[Record]
    """The complete rows."""
    rows: list[int]
    """The row number of each text in the file, from 1, without the header."""
    text_columns: list[str]
    """The text columns, requested or guessed."""
    skipped: int
    """Number of bad rows that were left out."""
    parsed: list[tuple[int, Record]]
    """Numbers and records of all rows that could be parsed, including those without a text."""

    @property
    def unparsed(self) -> int:
        """Number of bad rows whose cells could not be parsed."""
        return self.skipped - (len(self.parsed) - len(self.texts))

    def column(self, name: str) -> list[Any]:
        """Return the values of a column, one per text; reject a column that does not exist."""
        columns = list_columns(self.records)
        if name not in columns:
            raise InputError(f"No column {format_value(name)}. The columns are: {format_names(columns)}.")
        return [record.get(name) for record in self.records]

    def repeat_rows(self, texts: Sequence[str], rows: Sequence[int]) -> Table:
        """Return a table of m parts of texts, for reading only; ``rows`` has the position of each part's row."""
        return replace(self, texts=list(texts), records=[self.records[i] for i in rows], rows=[self.rows[i] for i in rows])

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> list[Record]:
        """Return the rows of the file with additional columns after their own.

        Args:
            columns: Name and values, one per text. If the table already has a column of a name, the new one gets a number.

        Returns:
            One row per parsed row, in their order, all with the same columns; rows without a text have None in the new ones.
        """
        table_columns = list_columns([record for _, record in self.parsed])
        new_names = choose_free_names(columns, table_columns)
        new_values = dict(zip(self.rows, zip(*columns.values(), strict=True), strict=True))
        no_values = (None,) * len(new_names)
        return [
            {name: record.get(name) for name in table_columns}
            | dict(zip(new_names, new_values.get(number, no_values), strict=True))
            for number, record in self.parsed
        ]


def make_table(records: Sequence[Record], text_column: str = "text") -> Table:
    """Make a table of rows that all have a text in one column."""
    rows = list(range(1, len(records) + 1))
    texts = [str(record[text_column]) for record in records]
    return Table(texts, list(records), rows, [text_column], skipped=0, parsed=list(zip(rows, records, strict=True)))


def choose_free_names(names: Iterable[str], used_names: Iterable[str]) -> list[str]:
    """Choose names of new columns: a name that the table has already gets a number.

    Args:
        names: The wanted names.
        used_names: The table's columns.

    Returns:
        One name per wanted name.

    Example:
        >>> from inbedder.io.tables import choose_free_names
        >>> choose_free_names(["group", "fit"], ["text", "group"])
        ['group_2', 'fit']
    """
    used_names, free_names = set(used_names), []
    for name in names:
        candidates = (name if i == 1 else f"{name}_{i}" for i in count(1))
        free_names.append(next(candidate for candidate in candidates if candidate not in used_names))
        used_names.add(free_names[-1])
    return free_names


def read_table(
    source: str,
    text_column: str | Sequence[str] | None = None,
    *,
    skip_bad: bool = False,
    delimiter: str | None = None,
    traces: str | None = None,
) -> Table:
    r"""Read the texts and the rows of a table.

    Args:
        source: A file (.csv .tsv .jsonl .json .txt, also compressed with gzip, .parquet or the first sheet of an .xlsx), or "-"
            for one text per line on standard input. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. The delimiter of
            a .csv (comma, semicolon, tab or bar) is the one that fits header and first rows best.
        text_column: The text column, or several, whose cells are joined by line breaks. None takes the one named "text", or else
            the only column that contains text, if no other column is empty.
        skip_bad: Leave out rows that have no text or cannot be parsed, instead of raising an error at the first.
        delimiter: Field delimiter of a .csv or .tsv; None detects it.
        traces: "conversation" or "step" to read agents' traces (see ``inbedder.io.traces``) as one text per such unit.

    Returns:
        The table.

    Raises:
        InputError: If the file, its type, a row or the column is not usable; the message says which.

    Example:
        >>> from pathlib import Path
        >>> from inbedder.io.tables import read_table
        >>> _ = Path("reviews.csv").write_text("text,stars\nThe soup was cold.,2\n")
        >>> read_table("reviews.csv").texts
        ['The soup was cold.']
    """
    parsed, bad_rows = _parse(source, delimiter, traces)
    if bad_rows and not skip_bad:
        raise _make_row_error(source, *bad_rows[0])
    if not parsed:
        raise InputError(f"{format_value(source)} has no rows{' that can be read' if bad_rows else ''}.")
    columns = find_text_columns([record for _, record in parsed], LINE_COLUMN if _is_plain(source) else text_column)
    results = [read_text(record, columns) for _, record in parsed]
    good = [i for i, (_, reason) in enumerate(results) if reason is None]
    if len(good) < len(parsed) and not skip_bad:
        first_bad = next(i for i, (_, reason) in enumerate(results) if reason is not None)
        raise _make_row_error(source, parsed[first_bad][0], str(results[first_bad][1]))
    if not good:
        raise InputError(f"{format_value(source)}: no row has a text in column {format_names(columns)}.")
    return Table(
        texts=[results[i][0] for i in good],
        records=[parsed[i][1] for i in good],
        rows=[parsed[i][0] for i in good],
        text_columns=columns,
        skipped=len(bad_rows) + len(parsed) - len(good),
        parsed=parsed,
    )


def _make_row_error(source: str, number: int, reason: str) -> InputError:
    advice = " If the file has another delimiter, set it with --delimiter." if DELIMITER_NOTE in reason else ""
    return InputError(
        f"{format_value(source)}, row {number}: {reason} Correct the row, or leave out such rows with --skip-bad.{advice}"
    )


def _is_plain(source: str) -> bool:
    return source == "-" or get_file_type(Path(source)) == ".txt"


def _parse(source: str, delimiter: str | None, traces: str | None) -> tuple[list[tuple[int, Record]], list[tuple[int, str]]]:
    """Return the rows that can be parsed, and the reasons why the others cannot, each with its number."""
    parsed: list[tuple[int, Record]] = []
    bad_rows: list[tuple[int, str]] = []
    with _open_repeatable(source) as path:
        for number, row in stream_rows(path, delimiter=delimiter, display_name=source, traces=traces):
            if isinstance(row, BadRow):
                bad_rows.append((number, str(row)))
            else:
                parsed.append((number, row))
    return parsed, bad_rows


def stream_rows(
    source: str,
    columns: Sequence[str] | None = None,
    *,
    delimiter: str | None = None,
    display_name: str | None = None,
    traces: str | None = None,
) -> Iterator[tuple[int, Record | BadRow]]:
    """Read a table row by row, with constant memory.

    Args:
        source: A file of a type that ``read_table`` reads, or "-" for standard input.
        columns: The required columns, to which the reading of a parquet file is restricted.
        delimiter: Field delimiter of a .csv or .tsv; None detects it.
        display_name: The name of the source in messages; None for its own name.
        traces: "conversation" or "step" to turn agents' traces into one row per such unit, which takes memory for all of them.

    Yields:
        The row's number in the file, from 1, and the row, or the reason why it cannot be read.

    Raises:
        InputError: If the file or its type is not usable.
    """
    file_type, name = get_file_type(Path(source)), format_value(display_name or source)
    if source != "-" and file_type not in READABLE_TYPES:
        readable = f"{' '.join(READABLE_TYPES)} (texts also as .gz)"
        raise InputError(f"{name}: unknown file type {format_value(file_type)}. Use one of {readable}, or - for lines on stdin.")
    try:
        if traces is None:
            yield from iterate_rows(source, columns, delimiter, display_name)
        else:
            yield from join_traces(iterate_rows(source, None, delimiter, display_name), traces)
    except UnicodeDecodeError as error:
        raise InputError(explain_undecodable(display_name or source, error)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {name}: {getattr(error, 'strerror', None) or error}.") from error


@dataclass(frozen=True)
class TextStream:
    """The texts of a table. Each iteration reads the file again, with constant memory."""

    source: str
    """The file."""
    text_columns: list[str]
    """The text columns."""
    count: int
    """Number of texts."""
    skipped: int
    """Number of bad rows that are left out."""
    delimiter: str | None = None
    """Field delimiter of a .csv; None detects it."""
    traces: str | None = None
    """The unit of agents' traces, or None."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield each text's row number, from 1, and the text; raise InputError if the file has changed."""
        num_texts = 0
        for number, row in stream_rows(self.source, self.text_columns, delimiter=self.delimiter, traces=self.traces):
            text, reason = ("", "") if isinstance(row, BadRow) else read_text(row, self.text_columns)
            if reason is None:
                num_texts += 1
                yield number, text
        if num_texts != self.count:
            raise InputError(f"{format_value(self.source)} changed while it was read. Rerun when no process writes to it.")


@contextmanager
def open_texts(
    source: str,
    text_column: str | Sequence[str] | None = None,
    *,
    skip_bad: bool = False,
    delimiter: str | None = None,
    traces: str | None = None,
) -> Iterator[TextStream]:
    """Check that all of a table can be used, by reading it once without keeping it.

    Args:
        source: A file of a type that ``read_table`` reads, or "-" for standard input; that and a pipe are copied to a temporary
            file.
        text_column: The text column, or several; None guesses it.
        skip_bad: Leave out rows that have no text or cannot be parsed.
        delimiter: Field delimiter of a .csv or .tsv; None detects it.
        traces: "conversation" or "step" to read agents' traces as one text per such unit.

    Yields:
        The texts. Those of a copy are available only inside the block.

    Raises:
        InputError: If the file, its type, a row or the column is not usable.
    """
    with _open_repeatable(source) as path:
        columns = find_columns(path, text_column, display_name=source, delimiter=delimiter, traces=traces)
        num_texts = num_skipped = 0
        for number, row in stream_rows(path, columns, delimiter=delimiter, display_name=source, traces=traces):
            reason = str(row) if isinstance(row, BadRow) else read_text(row, columns)[1]
            if reason is not None and not skip_bad:
                raise _make_row_error(source, number, reason)
            num_texts, num_skipped = num_texts + (reason is None), num_skipped + (reason is not None)
        if not num_texts:
            raise InputError(f"{format_value(source)}: no row has a text in column {format_names(columns)}.")
        yield TextStream(path, columns, num_texts, num_skipped, delimiter, traces)


@contextmanager
def _open_repeatable(source: str) -> Iterator[str]:
    """Yield a path that can be read several times: of standard input and of a pipe, a temporary copy."""
    if source != "-" and not is_pipe(source):
        yield source
        return
    with ExitStack() as stack:
        stream = sys.stdin.buffer if source == "-" else stack.enter_context(Path(source).open("rb"))
        copy = stack.enter_context(NamedTemporaryFile(suffix=".txt" if source == "-" else "".join(Path(source).suffixes)))
        shutil.copyfileobj(stream, copy)
        copy.flush()
        yield copy.name


def read_rows(source: str) -> list[Record]:
    """Read all rows of a table, none of which may be bad."""
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
    display_name: str | None = None,
    delimiter: str | None = None,
    traces: str | None = None,
) -> list[str]:
    """Find the text columns from the first rows.

    Args:
        source: A file.
        text_column: The requested column or columns; None guesses one.
        id_column: Another column that must exist.
        display_name: The name of the source in messages; None for its own name.
        delimiter: Field delimiter of a .csv or .tsv; None detects it.
        traces: The unit of agents' traces, or None.

    Returns:
        The names of the text columns.

    Raises:
        InputError: If a column does not exist, or there are no rows.
    """
    requested = [text_column] if isinstance(text_column, str) else list(text_column or ())
    needed_columns = [*requested, *([] if id_column is None else [id_column])] if requested else None
    rows = islice(
        stream_rows(source, needed_columns, delimiter=delimiter, display_name=display_name, traces=traces), MAX_INSPECTED_ROWS
    )
    head = [row for _, row in rows if not isinstance(row, BadRow)]
    if not head:
        raise InputError(f"{format_value(display_name or source)} has no rows.")
    if id_column is not None and id_column not in list_columns(head):
        names = format_names(list_columns(head))
        raise InputError(f"No column {format_value(id_column)}. The columns are: {names}. Choose one with --id-column.")
    return find_text_columns(head, LINE_COLUMN if _is_plain(source) else text_column)
