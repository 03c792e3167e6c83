"""How each kind of file gives its rows: lines, csv, tsv, jsonl, json (each also compressed by gzip), parquet and xlsx."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from inbedder.errors import InputError, format_names, format_value
from inbedder.io.columns import LINE_COLUMN
from inbedder.io.outputs import import_parquet
from inbedder.io.spreadsheets import read_sheet

PARQUET_BATCH_ROWS = 1024
"""Rows of a parquet file in memory at once."""
DELIMITERS = ",;\t|"
"""What can stand between the cells of a .csv; of equally good ones the first is taken."""
DELIMITER_LINE = re.compile(r'"?sep=(.)"?\r?\n?')
"""The first line of a .csv by which spreadsheets are told its delimiter."""
DELIMITER_NOTE = "set apart by"
"""What messages say of a delimiter."""
MAX_HEAD_LINES = 100
"""Lines of a .csv from which its delimiter is told."""
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins as the mark of UTF-16 does, so it is looked for first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Record = dict[str, Any]


class BadRow(Exception):  # noqa: N818 - carried, not raised
    """Why one row cannot be read."""


Rows = Iterator[tuple[int, Record | BadRow]]


def get_file_type(path: Path) -> str:
    """The suffix that says how a file is read, such as ".csv" of ``rows.CSV.gz``; only text can be compressed."""
    kind = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return inner if kind == ".gz" and inner not in (".parquet", ".xlsx") else kind


def iterate_rows(
    source: str, columns: Sequence[str] | None = None, delimiter: str | None = None
) -> Iterator[tuple[int, Record | BadRow]]:
    """The rows of a file, one by one.

    Args:
        source: A file of a known kind, or "-" for lines on standard input.
        columns: The columns that are needed; a parquet file then reads no other.
        delimiter: What stands between the cells of a .csv or .tsv; None finds it, or takes the tab of a .tsv.

    Yields:
        The row's number in the file, from 1, and the row, or why it cannot be read.

    Raises:
        InputError: When the file as a whole is not what its name says.
        OSError: When the file cannot be opened or read.
    """
    kind = ".txt" if source == "-" else get_file_type(Path(source))
    if kind == ".parquet":
        yield from _read_parquet(source, columns)
        return
    if kind == ".xlsx":
        yield from _read_xlsx(source)
        return
    with _open_text(source, newline="" if kind in (".csv", ".tsv") else None) as file:
        if kind == ".jsonl":
            yield from _read_jsonl(file)
        elif kind == ".json":
            yield from _read_json(file, source)
        elif kind == ".txt":
            yield from _read_lines(file)
        else:
            yield from _read_delimited(file, delimiter or ("\t" if kind == ".tsv" else DELIMITERS))


@contextmanager
def _open_text(source: str, newline: str | None) -> Iterator[IO[str]]:
    """Open text that says by its first bytes whether it is compressed and how it is encoded."""
    with ExitStack() as stack:
        file: Any = sys.stdin.buffer if source == "-" else stack.enter_context(Path(source).open("rb"))
        binary: Any = file if hasattr(file, "peek") else BufferedReader(file)  # what stands in for standard input may lack it
        if source.lower().endswith(".gz") or binary.peek(2)[:2] == GZIP_MAGIC:
            binary = stack.enter_context(gzip.GzipFile(fileobj=binary))
        text = TextIOWrapper(binary, encoding=_detect_encoding(source, binary.peek(1024)), errors="strict", newline=newline)
        try:
            yield text
        finally:
            text.detach()  # else it would close standard input


def _detect_encoding(source: str, head: bytes) -> str:
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    if head.count(0) > len(head) // 4:
        raise InputError(
            f"{format_value(source)} is no UTF-8 text but holds many zero bytes, as UTF-16 does. If it is UTF-16, convert it first: "
            f"iconv -f utf-16le -t utf-8 {format_value(source)}"
        )
    return "utf-8-sig"


def _read_lines(file: IO[str]) -> Rows:
    blank: list[tuple[int, Record | BadRow]] = []  # those at the end are no rows
    for number, line in enumerate(file, start=1):
        blank.append((number, {LINE_COLUMN: line.rstrip("\r\n")}))
        if line.strip():
            yield from blank
            blank.clear()


def _read_jsonl(file: IO[str]) -> Rows:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            yield number, BadRow(f"not JSON ({error}).")
        except RecursionError:
            yield number, BadRow("nested too deeply to be read.")
        else:
            yield number, _check_object(value)


def _read_json(file: IO[str], source: str) -> Rows:
    advice = "Rows as one JSON object per line are .jsonl."
    try:
        rows = json.load(file)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise InputError(f"{format_value(source)} is not JSON ({error}). {advice}") from error
    except RecursionError as error:
        raise InputError(f"{format_value(source)} is nested too deeply to be read. {advice}") from error
    if not isinstance(rows, list):
        raise InputError(f"{format_value(source)} is not a JSON list of objects. {advice}")
    for number, value in enumerate(rows, start=1):
        yield number, _check_object(value)


def _check_object(value: Any) -> Record | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{format_value(value)} is not a JSON object.")


class _Lines:
    """The lines of a csv, which can be gone back in to the second line of the row that was read last."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.again: deque[str] = deque()
        self.row: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        self.row.append(self.again.popleft() if self.again else next(self.file))
        return self.row[-1]

    def go_back(self, lines: int = 1) -> None:
        """Read the row again from its line of this number, from 0."""
        self.again.extendleft(reversed(self.row[lines:]))
        self.row.clear()


def _read_delimited(file: IO[str], delimiters: str) -> Rows:
    """Rows of a csv. One that cannot be read is left at its first line, so that an open quote takes no other rows with it."""
    csv.field_size_limit(2**31 - 1)
    lines = _Lines(file)
    head = list(islice(lines, MAX_HEAD_LINES))
    named = DELIMITER_LINE.fullmatch(head[0]) if head else None
    delimiter = named[1] if named else _detect_delimiter(head, delimiters)
    lines.go_back(1 if named else 0)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _read_header(reader)
    for number in count(1):
        lines.row.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, BadRow(f"not readable as csv ({error}). Look at its quotes.")
            lines.go_back()
            continue
        if cells and header and len(cells) != len(header):
            yield number, BadRow(f"{len(cells)} cells under {len(header)} columns, {DELIMITER_NOTE} {delimiter!r}.")
        elif cells and header:
            yield number, dict(zip(header, cells, strict=True))


def _read_header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(f"The header is not readable as csv ({error}). Look at its quotes.") from error
    _check_unique(header, "The header")
    return header


def _detect_delimiter(head: list[str], delimiters: str) -> str:
    """The delimiter that cuts the most rows into as many cells as the header, more than one.

    Where none does so to most rows, the one that cuts the header, and most rows into that many cells or more; else the first.
    """

    def fitting(delimiter: str) -> tuple[float, float]:
        try:
            header, *rows = filter(None, csv.reader(head, delimiter=delimiter))
        except (csv.Error, ValueError):  # no header
            return 0, 0
        if len(header) < 2:
            return 0, 0
        whole = sum(len(row) == len(header) for row in rows)
        cut = 1 < len(rows[-1]) < len(header) if rows else False  # the last line of the head may be the middle of a row
        shares = (whole + cut) / max(1, len(rows)), sum(len(row) >= len(header) for row in rows) / max(1, len(rows))
        return shares[0] * (shares[0] > 0.5), shares[1] * (shares[1] > 0.5)

    return max(delimiters, key=fitting)


def _read_parquet(path: str, columns: Sequence[str] | None) -> Rows:
    pyarrow, parquet = import_parquet()
    number = 0
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _check_unique(file.schema_arrow.names, format_value(path))
            for batch in file.iter_batches(PARQUET_BATCH_ROWS, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{format_value(path)} is not a parquet file ({error}).") from error


def _read_xlsx(path: str) -> Rows:
    rows = read_sheet(path)
    first = next(filter(None, rows), [])
    header = [f"column {number}" if name is None else str(name) for number, name in enumerate(first, start=1)]
    _check_unique(header, f"The header of {format_value(path)}")
    for number, cells in enumerate(rows, start=1):
        if len(cells) > len(header):
            yield number, BadRow(f"{len(cells)} cells under {len(header)} columns.")
        elif cells:
            yield number, dict(zip(header, [*cells, *[None] * (len(header) - len(cells))], strict=True))


def _check_unique(names: Sequence[str], where: str) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise InputError(f"{where} names {format_names(repeated)} twice. Give each column its own name.")
