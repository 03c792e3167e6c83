"""Readers of all file types: lines, csv, tsv, jsonl, json (each also compressed with gzip), parquet and xlsx."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import count
from pathlib import Path
from typing import IO, Any

from inbedder.errors import InputError, format_value
from inbedder.io.columns import LINE_COLUMN, Record
from inbedder.io.csv_cells import DELIMITERS, remove_guard
from inbedder.io.encodings import HEAD_BYTES, detect_encoding
from inbedder.io.file_signatures import BINARY_TYPES, GZIP_SIGNATURE, SIGNATURE_BYTES, check_signature
from inbedder.io.headers import Header
from inbedder.io.parquet_rows import read_parquet
from inbedder.io.spreadsheets import read_sheet
from inbedder.io.text_lines import MAX_LINE_CHARACTERS, iterate_lines, read_whole
from inbedder.runtime.user_paths import expand_name

DELIMITER_LINE = re.compile(r'"?sep=(.)"?\r?\n?')
"""A first line of a .csv that sets the delimiter for spreadsheets."""
DELIMITER_NOTE = "delimited by"
"""What messages say before a delimiter."""
MAX_HEAD_LINES = 100
"""Number of lines of a .csv from which its delimiter is detected."""
MAX_HEAD_BYTES = 1 << 20
"""Maximum size of these lines in memory, unless the first is longer."""
MAX_ROW_BYTES = 4 * MAX_LINE_CHARACTERS
"""Maximum size in memory of the lines of a row, so that an open quote does not collect the whole file."""


class BadRow(Exception):  # noqa: N818 - carried, not raised
    """The reason why a row cannot be read."""


Rows = Iterator[tuple[int, Record | BadRow]]


def get_file_type(path: Path) -> str:
    """Return the suffix that decides how a file is read, such as ".csv" for ``rows.CSV.gz``; only text may be compressed."""
    suffix = path.suffix.lower()
    inner_suffix = Path(path.stem).suffix.lower()
    return inner_suffix if suffix == ".gz" and inner_suffix not in (".parquet", ".xlsx") else suffix


def iterate_rows(
    source: str, columns: Sequence[str] | None = None, delimiter: str | None = None, display_name: str | None = None
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield the rows of a file.

    Args:
        source: A file of a known type, or "-" for lines on standard input.
        columns: The required columns, to which the reading of a parquet file is restricted.
        delimiter: Field delimiter of a .csv or .tsv; None detects it, or takes the tab for a .tsv.
        display_name: The name of the source in messages; None for its own name.

    Yields:
        The row's number in the file, from 1, and the row, or the reason why it cannot be read.

    Raises:
        InputError: If the file does not have the format of its suffix.
        OSError: If the file cannot be opened or read.
    """
    source = expand_name(source)
    file_type = ".txt" if source == "-" else get_file_type(Path(source))
    if file_type in BINARY_TYPES:
        with Path(source).open("rb") as binary:
            check_signature(source, binary.read(SIGNATURE_BYTES), file_type, source)
        yield from read_parquet(source, columns) if file_type == ".parquet" else _read_xlsx(source)
        return
    name = display_name or source
    with _open_text(source, file_type, name) as file:
        if file_type == ".jsonl":
            yield from _read_jsonl(iterate_lines(file, name))
        elif file_type == ".json":
            yield from _read_json(read_whole(file, name), name)
        elif file_type == ".txt":
            yield from _read_lines(iterate_lines(file, name))
        else:
            yield from _read_delimited(iterate_lines(file, name), delimiter or ("\t" if file_type == ".tsv" else DELIMITERS))


@contextmanager
def _open_text(source: str, file_type: str, display_name: str) -> Iterator[IO[str]]:
    """Open a text file, and detect compression and encoding from its first bytes."""
    newline = "" if file_type in (".csv", ".tsv") else None
    with ExitStack() as stack:
        file: Any = sys.stdin.buffer if source == "-" else stack.enter_context(Path(source).open("rb"))
        path = None if source == "-" else source
        binary: Any = file if hasattr(file, "peek") else BufferedReader(file)  # a replaced standard input may lack peek
        if source.lower().endswith(".gz") or binary.peek(2)[:2] == GZIP_SIGNATURE:
            binary, path = stack.enter_context(gzip.GzipFile(fileobj=binary)), None
        head = binary.peek(HEAD_BYTES)[:HEAD_BYTES]
        check_signature(display_name, head, file_type, path)
        text = TextIOWrapper(binary, encoding=detect_encoding(display_name, head), errors="strict", newline=newline)
        try:
            yield text
        finally:
            text.detach()  # otherwise it would close standard input


def _read_lines(lines: Iterator[str]) -> Rows:
    last_number = 0  # blank lines at the end are not rows
    for number, line in enumerate(lines, start=1):
        if line.strip():
            for blank_number in range(last_number + 1, number):
                yield blank_number, {LINE_COLUMN: ""}
            yield number, {LINE_COLUMN: line.rstrip("\r\n")}
            last_number = number


def _read_jsonl(lines: Iterator[str]) -> Rows:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_make_object)
        except ValueError as error:
            yield number, BadRow(f"not JSON ({error}).")
        except RecursionError:
            yield number, BadRow("nested too deeply.")
        else:
            yield number, _check_object(value)


def _read_json(text: str, source: str) -> Rows:
    advice = "Files with one JSON object per line are named .jsonl."
    try:
        rows = json.loads(text, object_pairs_hook=_make_object)
    except ValueError as error:
        raise InputError(f"{format_value(source)} is not JSON ({error}). {advice}") from error
    except RecursionError as error:
        raise InputError(f"{format_value(source)} is nested too deeply. {advice}") from error
    if not isinstance(rows, list):
        raise InputError(f"{format_value(source)} is not a JSON list of objects. {advice}")
    for number, value in enumerate(rows, start=1):
        yield number, _check_object(value)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, whose names occur once."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{format_value(next(name for name in names if names.count(name) > 1))} occurs twice in an object")
    return value


def _check_object(value: Any) -> Record | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{format_value(value)} is not a JSON object.")


class _Lines:
    """The lines of a csv, with the option to read the last row again from its second line. The size of a row is bounded."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines = lines
        self.pending: deque[str] = deque()
        self.row: list[str] = []
        self.row_bytes = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self.pending.popleft() if self.pending else next(self.lines)
        self.row.append(line)
        self.row_bytes += sys.getsizeof(line)
        if self.row_bytes > MAX_ROW_BYTES and len(self.row) > 1:
            raise csv.Error("a quoted cell is too long")
        return line

    def start_row(self) -> None:
        """Forget the lines of the last row."""
        self.row.clear()
        self.row_bytes = 0

    def rewind(self, line: int = 1) -> None:
        """Read the row again from a line, counted from 0."""
        self.pending.extendleft(reversed(self.row[line:]))
        self.start_row()


def _read_delimited(text_lines: Iterator[str], delimiters: str) -> Rows:
    """Yield the rows of a csv. After an unreadable row, continue at its second line, so that an open quote costs only one row."""
    csv.field_size_limit(MAX_LINE_CHARACTERS)
    lines = _Lines(text_lines)
    head: list[str] = []
    while len(head) < MAX_HEAD_LINES and lines.row_bytes < MAX_HEAD_BYTES and (line := next(lines, None)) is not None:
        head.append(line)
    delimiter_line = DELIMITER_LINE.fullmatch(head[0]) if head else None
    delimiter = delimiter_line[1] if delimiter_line else _detect_delimiter(head, delimiters)
    lines.rewind(1 if delimiter_line else 0)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _read_header(reader, lines)
    for number in count(1):
        lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadRow(f"not readable as csv ({error}). Check its quotes.")
            lines.rewind()
            continue
        if cells and len(cells) != len(header.names):
            note = " If lines that begin with # are comments, remove them." if head[0].startswith("#") else ""
            yield number, BadRow(f"{len(cells)} cells under {len(header.names)} columns, {DELIMITER_NOTE} {delimiter!r}.{note}")
        elif cells:
            yield number, header.make_record([remove_guard(cell) for cell in cells])


def _read_header(reader: Iterator[list[str]], lines: _Lines) -> Header:
    cells: list[str] = []
    try:
        while not cells:
            lines.start_row()
            cells = next(reader)
    except StopIteration:
        pass
    except csv.Error as error:
        raise InputError(f"The header is not readable as csv ({error}). Check its quotes.") from error
    return Header([remove_guard(cell) for cell in cells], "The header")


def _detect_delimiter(head: list[str], delimiters: str) -> str:
    """Return the delimiter that splits the most rows into as many cells as the header, and the header into more than one.

    If no delimiter does so for most rows, return one that splits most rows into at least as many cells; otherwise the first.
    """

    def score_delimiter(delimiter: str) -> tuple[float, float]:
        try:
            header, *rows = filter(None, csv.reader(head, delimiter=delimiter))
        except (csv.Error, ValueError):  # no header
            return 0, 0
        if len(header) < 2:
            return 0, 0
        num_complete = sum(len(row) == len(header) for row in rows)
        is_last_cut = 1 < len(rows[-1]) < len(header) if rows else False  # the head may end in the middle of a row
        complete_share = (num_complete + is_last_cut) / max(1, len(rows))
        filled_share = sum(len(row) >= len(header) for row in rows) / max(1, len(rows))
        return complete_share * (complete_share > 0.5), filled_share * (filled_share > 0.5)

    return max(delimiters, key=score_delimiter)


def _read_xlsx(path: str) -> Rows:
    rows = enumerate(read_sheet(path), start=1)
    header_number, cells = next(filter(lambda row: row[1], rows), (0, []))
    header = Header(cells, f"The header of {format_value(path)}")
    is_title = len(header.names) == 1  # possibly, until a row is seen
    for number, cells in rows:
        if not cells:
            continue
        if is_title and len(cells) > 1 and all(isinstance(cell, str) and cell for cell in cells):
            raise InputError(
                f"{format_value(path)}: row {header_number} has one cell and row {number} has {len(cells)}. "
                f"If row {number} is the header, delete the rows above it; if not, name every column."
            )
        is_title = False
        header.extend(len(cells))
        yield number - header_number, header.make_record([*cells, *[None] * (len(header.names) - len(cells))])
