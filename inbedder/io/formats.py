"""Readers of all file types: lines, csv, tsv, jsonl, json (each also compressed with gzip), parquet and xlsx."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from inbedder.errors import InputError, format_value
from inbedder.io.columns import LINE_COLUMN, Record
from inbedder.io.csv_cells import DELIMITERS
from inbedder.io.headers import Header
from inbedder.io.parquet_rows import read_parquet
from inbedder.io.spreadsheets import read_sheet

DELIMITER_LINE = re.compile(r'"?sep=(.)"?\r?\n?')
"""A first line of a .csv that sets the delimiter for spreadsheets."""
DELIMITER_NOTE = "delimited by"
"""What messages say before a delimiter."""
MAX_HEAD_LINES = 100
"""Number of lines of a .csv from which its delimiter is detected."""
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins with the mark of UTF-16, so it is checked first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class BadRow(Exception):  # noqa: N818 - carried, not raised
    """The reason why a row cannot be read."""


Rows = Iterator[tuple[int, Record | BadRow]]


def get_file_type(path: Path) -> str:
    """Return the suffix that decides how a file is read, such as ".csv" for ``rows.CSV.gz``; only text may be compressed."""
    suffix = path.suffix.lower()
    inner_suffix = Path(path.stem).suffix.lower()
    return inner_suffix if suffix == ".gz" and inner_suffix not in (".parquet", ".xlsx") else suffix


def iterate_rows(
    source: str, columns: Sequence[str] | None = None, delimiter: str | None = None
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield the rows of a file.

    Args:
        source: A file of a known type, or "-" for lines on standard input.
        columns: The required columns, to which the reading of a parquet file is restricted.
        delimiter: Field delimiter of a .csv or .tsv; None detects it, or takes the tab for a .tsv.

    Yields:
        The row's number in the file, from 1, and the row, or the reason why it cannot be read.

    Raises:
        InputError: When the file does not have the format of its suffix.
        OSError: When the file cannot be opened or read.
    """
    file_type = ".txt" if source == "-" else get_file_type(Path(source))
    if file_type == ".parquet":
        yield from read_parquet(source, columns)
        return
    if file_type == ".xlsx":
        yield from _read_xlsx(source)
        return
    with _open_text(source, newline="" if file_type in (".csv", ".tsv") else None) as file:
        if file_type == ".jsonl":
            yield from _read_jsonl(file)
        elif file_type == ".json":
            yield from _read_json(file, source)
        elif file_type == ".txt":
            yield from _read_lines(file)
        else:
            yield from _read_delimited(file, delimiter or ("\t" if file_type == ".tsv" else DELIMITERS))


@contextmanager
def _open_text(source: str, newline: str | None) -> Iterator[IO[str]]:
    """Open a text file, and detect compression and encoding from its first bytes."""
    with ExitStack() as stack:
        file: Any = sys.stdin.buffer if source == "-" else stack.enter_context(Path(source).open("rb"))
        binary: Any = file if hasattr(file, "peek") else BufferedReader(file)  # a replaced standard input may lack peek
        if source.lower().endswith(".gz") or binary.peek(2)[:2] == GZIP_MAGIC:
            binary = stack.enter_context(gzip.GzipFile(fileobj=binary))
        text = TextIOWrapper(binary, encoding=_detect_encoding(source, binary.peek(1024)), errors="strict", newline=newline)
        try:
            yield text
        finally:
            text.detach()  # otherwise it would close standard input


def _detect_encoding(source: str, head: bytes) -> str:
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if head.count(0) > len(head) // 4:
        name = format_value(source)
        raise InputError(
            f"{name} is not UTF-8 text: it contains many zero bytes, as UTF-16 does. If it is UTF-16, convert it first: "
            f"iconv -f utf-16le -t utf-8 {name}"
        )
    return "utf-8-sig"


def _read_lines(file: IO[str]) -> Rows:
    blank_lines: list[tuple[int, Record | BadRow]] = []  # those at the end are not rows
    for number, line in enumerate(file, start=1):
        blank_lines.append((number, {LINE_COLUMN: line.rstrip("\r\n")}))
        if line.strip():
            yield from blank_lines
            blank_lines.clear()


def _read_jsonl(file: IO[str]) -> Rows:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            yield number, BadRow(f"not JSON ({error}).")
        except RecursionError:
            yield number, BadRow("nested too deeply.")
        else:
            yield number, _check_object(value)


def _read_json(file: IO[str], source: str) -> Rows:
    advice = "Files with one JSON object per line are named .jsonl."
    try:
        rows = json.load(file)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise InputError(f"{format_value(source)} is not JSON ({error}). {advice}") from error
    except RecursionError as error:
        raise InputError(f"{format_value(source)} is nested too deeply. {advice}") from error
    if not isinstance(rows, list):
        raise InputError(f"{format_value(source)} is not a JSON list of objects. {advice}")
    for number, value in enumerate(rows, start=1):
        yield number, _check_object(value)


def _check_object(value: Any) -> Record | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{format_value(value)} is not a JSON object.")


class _Lines:
    """The lines of a csv, with the option to read the last row again from its second line."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.pending: deque[str] = deque()
        self.row: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        self.row.append(self.pending.popleft() if self.pending else next(self.file))
        return self.row[-1]

    def rewind(self, line: int = 1) -> None:
        """Read the row again from a line, counted from 0."""
        self.pending.extendleft(reversed(self.row[line:]))
        self.row.clear()


def _read_delimited(file: IO[str], delimiters: str) -> Rows:
    """Yield the rows of a csv. After an unreadable row, continue at its second line, so that an open quote costs only one row."""
    csv.field_size_limit(2**31 - 1)
    lines = _Lines(file)
    head = list(islice(lines, MAX_HEAD_LINES))
    delimiter_line = DELIMITER_LINE.fullmatch(head[0]) if head else None
    delimiter = delimiter_line[1] if delimiter_line else _detect_delimiter(head, delimiters)
    lines.rewind(1 if delimiter_line else 0)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _read_header(reader)
    for number in count(1):
        lines.row.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadRow(f"not readable as csv ({error}). Check its quotes.")
            lines.rewind()
            continue
        if cells and len(cells) != len(header.names):
            yield number, BadRow(f"{len(cells)} cells under {len(header.names)} columns, {DELIMITER_NOTE} {delimiter!r}.")
        elif cells:
            yield number, header.make_record(cells)


def _read_header(reader: Iterator[list[str]]) -> Header:
    try:
        cells: list[str] = next(filter(None, reader), [])
    except csv.Error as error:
        raise InputError(f"The header is not readable as csv ({error}). Check its quotes.") from error
    return Header(cells, "The header")


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
    rows = read_sheet(path)
    header = Header(next(filter(None, rows), []), f"The header of {format_value(path)}")
    for number, cells in enumerate(rows, start=1):
        if cells:
            header.extend(len(cells))
            yield number, header.make_record([*cells, *[None] * (len(header.names) - len(cells))])
