"""The one reader of tables: csv, tsv, jsonl, json, plain text (each also as .gz), parquet, and standard input."""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from inbedder.errors import InputError
from inbedder.outputs import import_parquet

READABLE = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt")
LINE_COLUMN = "text"
GUESSED_FROM = 1000
"""Rows that are looked at to find the column of the texts."""
PARQUET_BATCH = 1024
"""Rows of a parquet file in memory at once."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows that can be used, and how many could not."""

    texts: list[str]
    """The text of each row."""
    records: list[Record]
    """The whole rows, as read."""
    rows: list[int]
    """Row number of each text in the file, from 1, the header not counted."""
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
            raise InputError(f"No column {name!r}. The columns are: {', '.join(columns)}.")
        return [record.get(name) for record in self.records]


class BadRow(Exception):  # noqa: N818 - carried, not raised
    """Why one row cannot be read."""


def read_table(source: str, text_column: str | None = None, *, skip_bad: bool = False) -> Table:
    """Read texts with their rows.

    Args:
        source: A file (.csv .tsv .jsonl .json .txt, also as .gz, or .parquet), or "-" for one text per line on standard input.
        text_column: The column that holds the texts; required if several columns contain text.
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
        raise InputError(f"{source} holds no rows.")
    plain = source == "-" or kind_of(Path(source)) == ".txt"
    column = _text_column([record for _, record in parsed], LINE_COLUMN if plain else text_column)
    reasons = [why_no_text(record.get(column)) for _, record in parsed]
    good = [entry for entry, reason in zip(parsed, reasons, strict=True) if reason is None]
    if len(good) < len(parsed) and not skip_bad:
        first = next(i for i, reason in enumerate(reasons) if reason is not None)
        raise _bad_row(source, parsed[first][0], f"column {column!r} {reasons[first]}.")
    if not good:
        raise InputError(f"{source}: no row has a text in column {column!r}.")
    return Table(
        texts=[str(record[column]) for _, record in good],
        records=[record for _, record in good],
        rows=[number for number, _ in good],
        skipped=len(bad) + len(parsed) - len(good),
    )


def _bad_row(source: str, number: int, reason: str) -> InputError:
    return InputError(f"{source}, row {number}: {reason} Mend the row, or leave out such rows with --skip-bad.")


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
    path = Path(source)
    if source != "-" and kind_of(path) not in READABLE:
        raise InputError(
            f"{source}: unknown file type {kind_of(path)!r}. Give one of {' '.join(READABLE)} (texts also as .gz), or - for "
            "lines on stdin."
        )
    try:
        yield from _read_rows(source, path, columns)
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text. Convert it first: iconv -f latin1 -t utf-8 {source}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"Cannot read {source}: {getattr(error, 'strerror', None) or error}.") from error


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
            raise InputError(f"{source}, row {number}: {row}")
        rows.append(row)
    return rows


def kind_of(path: Path) -> str:
    """The suffix that says how a file is read, such as ".csv" of ``rows.CSV.gz``; only text can be compressed."""
    kind = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return inner if kind == ".gz" and inner != ".parquet" else kind


def find_columns(source: str, text_column: str | None, id_column: str | None = None) -> str:
    """Find the column of the texts from the first rows alone.

    Args:
        source: A file.
        text_column: The column asked for; None guesses.
        id_column: A column that has to be there too.

    Returns:
        The name of the texts' column.

    Raises:
        InputError: When there is no such column, or no row.
    """
    head = [row for _, row in islice(stream_rows(source), GUESSED_FROM) if not isinstance(row, BadRow)]
    if not head:
        raise InputError(f"{source} holds no rows.")
    if id_column is not None and id_column not in _columns(head):
        raise InputError(f"No column {id_column!r}. The columns are: {', '.join(_columns(head))}. Name one with --id-column.")
    return _text_column(head, LINE_COLUMN if kind_of(Path(source)) == ".txt" else text_column)


def why_no_text(value: Any) -> str | None:
    """Why a value is no text that can be embedded, or None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "is empty (NaN)"
    if isinstance(value, str):
        return None if value.strip() else "is empty"
    return f"is {value!r}, not text"


def _read_rows(source: str, path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, Record | BadRow]]:
    if source == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")  # type: ignore[union-attr]
        yield from _read_lines(sys.stdin)
        return
    kind = kind_of(path)
    if kind == ".parquet":
        yield from _read_parquet(path, columns)
        return
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="" if kind in (".csv", ".tsv") else None) as file:
        if kind == ".jsonl":
            yield from _read_jsonl(file)
        elif kind == ".json":
            yield from _read_json(file, path)
        elif kind == ".txt":
            yield from _read_lines(file)
        else:
            yield from _read_delimited(file, "\t" if kind == ".tsv" else ",")


def _read_lines(file: IO[str]) -> Iterator[tuple[int, Record | BadRow]]:
    blank: list[tuple[int, Record | BadRow]] = []  # those at the end are no rows
    for number, line in enumerate(file, start=1):
        blank.append((number, {LINE_COLUMN: line.rstrip("\r\n")}))
        if line.strip():
            yield from blank
            blank.clear()


def _read_jsonl(file: IO[str]) -> Iterator[tuple[int, Record | BadRow]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            yield number, BadRow(f"not JSON ({error}).")
            continue
        yield number, value if isinstance(value, dict) else BadRow(f"{line.strip()[:60]} is not a JSON object.")


def _read_json(file: IO[str], path: Path) -> Iterator[tuple[int, Record | BadRow]]:
    try:
        rows = json.load(file)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}). Rows as one JSON object per line are .jsonl.") from error
    if not isinstance(rows, list):
        raise InputError(f"{path} is not a JSON list of objects. Rows as one JSON object per line are .jsonl.")
    for number, value in enumerate(rows, start=1):
        yield number, value if isinstance(value, dict) else BadRow(f"{str(value)[:60]} is not a JSON object.")


def _read_delimited(file: IO[str], delimiter: str) -> Iterator[tuple[int, Record | BadRow]]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    header = next(reader, None)
    number = 0
    if header and len(set(header)) < len(header):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise InputError(f"The header names {', '.join(map(repr, twice))} twice. Give each column its own name.")
    try:
        for number, cells in enumerate(reader, start=1):
            if cells and header and len(cells) != len(header):
                yield number, BadRow(f"{len(cells)} cells under {len(header)} columns.")
            elif cells and header:
                yield number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        yield number + 1, BadRow(f"not readable as csv ({error}); what follows is lost.")


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, Record | BadRow]]:
    pyarrow, parquet = import_parquet()
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(PARQUET_BATCH, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path} is not a parquet file ({error}).") from error


def _columns(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(str(name) for record in records for name in record))


def _text_column(records: Sequence[Record], wanted: str | None) -> str:
    columns = _columns(records)
    if wanted is not None:
        if wanted not in columns:
            raise InputError(f"No column {wanted!r}. The columns are: {', '.join(columns)}. Name one with --text-column.")
        return wanted
    wordy = [name for name in columns if _share(records, name, lambda value: any(letter.isalpha() for letter in value)) > 0.5]
    if len(wordy) > 1:
        several = [name for name in wordy if _share(records, name, lambda value: " " in value.strip()) > 0.5]
        wordy = several if len(several) == 1 else wordy
    if len(wordy) == 1:
        return wordy[0]
    found = "several columns hold text" if wordy else "no column holds text"
    raise InputError(f"{found[0].upper()}{found[1:]}; the columns are: {', '.join(columns)}. Name one with --text-column.")


def _share(records: Sequence[Record], name: str, holds: Callable[[str], bool]) -> float:
    values = [record.get(name) for record in records[:GUESSED_FROM]]
    filled = [value for value in values if why_no_text(value) != "is empty (NaN)" and value != ""]
    return sum(isinstance(value, str) and holds(value) for value in filled) / max(1, len(filled))
