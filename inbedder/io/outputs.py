"""Vectors, answers and rows on disk."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, MissingExtraError, format_value
from inbedder.io.files import atomic_write, check_target
from inbedder.io.spreadsheets import import_openpyxl, write_sheet
from inbedder.prompting.tokenization import clean_text

Record = dict[str, Any]

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection")."""
NUMBER_PATTERN = re.compile(r"[+-][\d.,]*%?")
"""What begins as a formula and is a number, or a dash for a missing one."""


def check_writable(path: Path, sources: Iterable[str] = ()) -> None:
    """Find out before the work whether a file can be written after it, and whether a table's library is there.

    Args:
        path: The file to be written.
        sources: What is read: files, or "-" for standard input.

    Raises:
        InputError: As ``inbedder.io.files.check_target`` says.
    """
    check_target(path, sources)
    if path.suffix.lower() == ".parquet":
        import_parquet()
    elif path.suffix.lower() == ".xlsx":
        import_openpyxl()
    elif path.suffix.lower() == ".html":
        import_jinja2()


def import_jinja2() -> Any:
    """Import jinja2, or raise MissingExtraError."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("jinja2", "mini") from error
    return jinja2


def import_parquet() -> tuple[Any, Any]:
    """Import pyarrow and its parquet module, or raise MissingExtraError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "mini") from error
    return pyarrow, pyarrow.parquet


def write_records(records: Iterable[Record], path: str | Path, *, guard_cells: bool = True) -> None:
    """Write rows, all at once or not at all.

    Args:
        records: The rows. Where their columns differ, a table has those of all, with empty cells; .json and .jsonl hold each row
            as it is.
        path: A .csv, .tsv, .jsonl, .json, .parquet or .xlsx file.
        guard_cells: Put an apostrophe before each text of a .csv or .tsv that a spreadsheet would take for a formula, which may
            run programs or send data away. Numbers stay as they are.

    Raises:
        InputError: When the type is unknown or the file cannot be written.
    """
    path, kind, rows = Path(path), Path(path).suffix.lower(), list(records)
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    with atomic_write(path) as temporary:
        if kind == ".parquet":
            pyarrow, parquet = import_parquet()
            table = {name: _make_arrow_column(pyarrow, [row.get(name) for row in rows]) for name in columns}
            parquet.write_table(pyarrow.table(table), temporary, write_page_checksum=True)
        elif kind == ".xlsx":
            write_sheet(columns, [[_convert_cell(row.get(name)) for name in columns] for row in rows], temporary)
        elif kind == ".json":
            temporary.write_text(json.dumps(rows, indent=1, default=str), encoding="utf-8")
        elif kind == ".jsonl":
            temporary.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
        elif kind in (".csv", ".tsv"):
            with temporary.open("w", encoding="utf-8", errors="replace", newline="") as file:
                writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",")
                for cells in (columns, *([_convert_cell(row.get(name)) for name in columns] for row in rows)):
                    writer.writerow([_guard_cell(cell) for cell in cells] if guard_cells else cells)
        else:
            raise InputError(
                f"{format_value(str(path))}: cannot write {format_value(kind)}. Give .csv, .tsv, .jsonl, .json, .parquet, .xlsx."
            )


def _convert_cell(value: Any) -> Any:
    """A value as the cell of a table without nested ones."""
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, (dict, list, tuple)) else value


def _make_arrow_column(pyarrow: Any, values: Sequence[Any]) -> Any:
    """A column in the type that its values have; as text where they have none in common."""
    cleaned = [clean_text(value) if isinstance(value, str) else value for value in values]
    try:
        return pyarrow.array(cleaned)
    except (pyarrow.ArrowException, OverflowError):
        texts = (value if value is None or isinstance(value, str) else _convert_cell(value) for value in cleaned)
        return pyarrow.array([None if text is None else clean_text(str(text)) for text in texts])


def _guard_cell(cell: Any) -> Any:
    return (
        f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) and not NUMBER_PATTERN.fullmatch(cell) else cell
    )


class VectorWriter:
    """Writes vectors as they come, in the order of the texts, so that memory does not grow with them."""

    def __init__(self, path: Path, count: int) -> None:
        """Open the file.

        Args:
            path: A .npy or .parquet file that is there already, empty.
            count: How many vectors will come.
        """
        self.path, self.count = path, count
        self.file = path.open("wb")
        self.table: Any = None

    def add(self, rows: Sequence[int], texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Write the next vectors.

        Args:
            rows: n row numbers.
            texts: n texts.
            vectors: float32, shape (n, d); with ``answers`` where they were re-encoded from some.
        """
        if self.path.suffix.lower() == ".npy":
            if not self.file.tell():
                about = {"descr": "<f4", "fortran_order": False, "shape": (self.count, vectors.shape[1])}
                np.lib.format.write_array_header_1_0(self.file, about)
            self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            return
        pyarrow, parquet = import_parquet()
        columns = {
            "row": pyarrow.array(rows, pyarrow.int64()),
            "text": [clean_text(text) for text in texts],
            "embedding": pyarrow.FixedSizeListArray.from_arrays(np.asarray(vectors).ravel(), vectors.shape[1]).cast(
                pyarrow.list_(pyarrow.float32())
            ),
        }
        answers = getattr(vectors, "answers", None)
        table = pyarrow.table(columns if answers is None else {**columns, "answers": answers})
        if self.table is None:
            self.table = parquet.ParquetWriter(self.file, table.schema, write_page_checksum=True)
        self.table.write_table(table)

    def close(self) -> None:
        """End the file."""
        if self.table is not None:
            self.table.close()
        self.file.close()


@contextmanager
def open_vector_writer(path: Path, count: int) -> Iterator[VectorWriter]:
    """Write vectors bit by bit, and all of them or none: the file has its name when the block ends.

    Args:
        path: A .npy file for the vectors alone, or a .parquet file of row, text, embedding and, where there are, answers.
        count: How many vectors will come.

    Yields:
        What takes them.

    Raises:
        InputError: When the file cannot be written.
    """
    with atomic_write(path) as temporary, closing(VectorWriter(temporary, count)) as writer:
        yield writer


def write_answers(
    path: Path, answers: Sequence[Sequence[str]], rows: Sequence[int], texts: Sequence[str], *, guard_cells: bool = True
) -> None:
    """Write the answers to each text, all at once or not at all: one in the column "answer", or several numbered from 1.

    Args:
        path: As for ``write_records``.
        answers: n lists of equally many answers.
        rows: n row numbers.
        texts: n texts.
        guard_cells: As for ``write_records``.

    Raises:
        InputError: When the file cannot be written.
    """
    records: list[Record] = []
    for row, text, answers_of_row in zip(rows, texts, answers, strict=True):
        names = ["answer"] if len(answers_of_row) == 1 else [f"answer_{i + 1}" for i in range(len(answers_of_row))]
        records.append({"row": row, "text": text, **dict(zip(names, answers_of_row, strict=True))})
    write_records(records, path, guard_cells=guard_cells)
