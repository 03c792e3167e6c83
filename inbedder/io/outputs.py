"""Writers of vectors, answers and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError, format_value, import_extra
from inbedder.io.cell_values import dump_json, is_missing, to_text
from inbedder.io.column_types import has_one_kind
from inbedder.io.columns import Record, list_columns
from inbedder.io.csv_cells import format_row
from inbedder.io.files import atomic_write, check_target
from inbedder.io.spreadsheets import import_openpyxl, write_sheet
from inbedder.prompting.tokenization import clean_text


def check_writable(path: Path, sources: Iterable[str] = ()) -> None:
    """Check that an output can be written, that it is not an input, and that its type's library is installed, before a run."""
    check_target(path, sources)
    if path.suffix.lower() == ".parquet":
        import_parquet()
    elif path.suffix.lower() == ".xlsx":
        import_openpyxl()
    elif path.suffix.lower() == ".html":
        import_jinja2()


def import_jinja2() -> Any:
    """Import jinja2, or raise MissingExtraError."""
    return import_extra("jinja2", "report")


def import_parquet() -> tuple[Any, Any]:
    """Import pyarrow and its parquet module, or raise MissingExtraError."""
    return import_extra("pyarrow", "tables"), import_extra("pyarrow.parquet", "tables")


def write_records(records: Iterable[Record], path: str | Path, *, guard_cells: bool = True) -> None:
    """Write rows, all of them or none.

    Args:
        records: The rows. If their columns differ, a table has the columns of all, with empty cells; .json and .jsonl contain
            each row as it is, with null for NaN and infinity.
        path: A .csv, .tsv, .jsonl, .json, .parquet or .xlsx file.
        guard_cells: Put an apostrophe before each text of a .csv or .tsv that a spreadsheet would read as a formula, which could
            run programs or send data. Numbers are unchanged.

    Raises:
        InputError: If the file type is unknown or the file cannot be written.

    Example:
        >>> from pathlib import Path
        >>> from inbedder.io.outputs import write_records
        >>> write_records([{"text": "=1+1", "group": 3}], "groups.csv")
        >>> Path("groups.csv").read_text().splitlines()
        ['text,group', "'=1+1,3"]
    """
    path, file_type, rows = Path(path), Path(path).suffix.lower(), list(records)
    columns = list_columns(rows)
    with atomic_write(path) as temporary:
        if file_type == ".parquet":
            pyarrow, parquet = import_parquet()
            table = {name: _make_arrow_column(pyarrow, [row.get(name) for row in rows]) for name in columns}
            parquet.write_table(pyarrow.table(table), temporary, write_page_checksum=True)
        elif file_type == ".xlsx":
            write_sheet(columns, [[row.get(name) for name in columns] for row in rows], temporary)
        elif file_type == ".json":
            temporary.write_text(dump_json(rows, indent=1), encoding="utf-8")
        elif file_type == ".jsonl":
            temporary.write_text("".join(dump_json(row) + "\n" for row in rows), encoding="utf-8")
        elif file_type in (".csv", ".tsv"):
            delimiter = "\t" if file_type == ".tsv" else ","
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.write(format_row(columns, delimiter, guard_cells=guard_cells))
                for row in rows:
                    file.write(format_row(map(row.get, columns), delimiter, guard_cells=guard_cells))
        else:
            name = format_value(str(path))
            raise InputError(
                f"{name}: cannot write {format_value(file_type)}. Choose .csv, .tsv, .jsonl, .json, .parquet or .xlsx."
            )


def _make_arrow_column(pyarrow: Any, values: Sequence[Any]) -> Any:
    """Convert values to a column of their common type, or to text if they have none."""
    cleaned = [clean_text(value) if isinstance(value, str) else value for value in values]
    try:
        if has_one_kind(cleaned):
            zones = [getattr(value, "tzinfo", None) for value in cleaned if getattr(value, "nanosecond", 0)]
            return pyarrow.array(cleaned, pyarrow.timestamp("ns", zones[0]) if zones else None)  # it would drop nanoseconds
    except (pyarrow.ArrowException, OverflowError):
        pass
    return pyarrow.array([None if is_missing(value) else clean_text(to_text(value)) for value in cleaned])


class VectorWriter:
    """Writes vectors batch by batch, in the order of the texts, with constant memory."""

    def __init__(self, path: Path, count: int) -> None:
        """Open an existing, empty .npy or .parquet file for ``count`` vectors."""
        self.path, self.count = path, count
        self.file = path.open("wb")
        self.table: Any = None

    def add(self, rows: Sequence[int], texts: Sequence[str], vectors: NDArray[Any]) -> None:
        """Write the next vectors.

        Args:
            rows: n row numbers.
            texts: n texts.
            vectors: float32, int8 or uint8, shape (n, d); re-encoded vectors have ``answers``, which a .parquet file stores too.
        """
        dtype = vectors.dtype if vectors.dtype in (np.int8, np.uint8) else np.dtype("<f4")
        values = np.ascontiguousarray(vectors, dtype=dtype)
        if self.path.suffix.lower() == ".npy":
            if not self.file.tell():
                header = {
                    "descr": np.lib.format.dtype_to_descr(dtype),
                    "fortran_order": False,
                    "shape": (self.count, vectors.shape[1]),
                }
                np.lib.format.write_array_header_1_0(self.file, header)
            self.file.write(values.data)
            return
        pyarrow, parquet = import_parquet()
        columns = {
            "row": pyarrow.array(rows, pyarrow.int64()),
            "text": [clean_text(text) for text in texts],
            "embedding": pyarrow.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1]).cast(
                pyarrow.list_(pyarrow.from_numpy_dtype(dtype))
            ),
        }
        answers = getattr(vectors, "answers", None)
        table = pyarrow.table(columns if answers is None else {**columns, "answers": answers})
        if self.table is None:
            self.table = parquet.ParquetWriter(self.file, table.schema, write_page_checksum=True)
        self.table.write_table(table)

    def close(self) -> None:
        """Close the file."""
        if self.table is not None:
            self.table.close()
        self.file.close()


@contextmanager
def open_vector_writer(path: Path, count: int) -> Iterator[VectorWriter]:
    """Write vectors batch by batch, all of them or none: the file gets its name when the block ends.

    Args:
        path: A .npy file of the vectors, or a .parquet file of row, text, embedding and, for re-encoded vectors, answers.
        count: The number of vectors that will be written.

    Yields:
        The writer.

    Raises:
        InputError: If the file cannot be written.
    """
    with atomic_write(path) as temporary, closing(VectorWriter(temporary, count)) as writer:
        yield writer
