"""Reading and writing .xlsx files with openpyxl."""

from __future__ import annotations

import datetime
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np

from inbedder.errors import InputError, format_names, format_value, import_extra
from inbedder.io.cell_values import is_missing, to_text
from inbedder.io.column_types import shorten_digits
from inbedder.io.sheet_marks import SheetMarks, is_strict, read_marks
from inbedder.prompting.tokenization import clean_text

MAX_ROWS = 1_048_576
"""Maximum number of rows of a sheet, including the header."""
MAX_COLUMNS = 16_384
"""Maximum number of columns of a sheet."""
MAX_CELL_CHARACTERS = 32_767
"""Maximum length of a cell."""
FIRST_YEAR = 1900
"""The first year of a sheet's calendar; earlier dates are written as text."""
DIGITS_FORMAT = re.compile(r"0[-0 ()/]*0")
"""Number formats that show zeros before a number, as of a postal code or a telephone."""
ESCAPE_LIKE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
"""The start of a text such as _x000D_, which a sheet would read as a control character."""
MAX_DIGITS = 15
"""Numbers of more digits, such as long ids, would lose some in a sheet and are written as text."""


def import_openpyxl() -> Any:
    """Import openpyxl, or raise MissingExtraError."""
    import_extra("openpyxl.cell.cell", "tables")
    return import_extra("openpyxl", "tables")


def read_sheet(path: str) -> Iterator[list[Any]]:
    """Read the first sheet of a workbook row by row, as it is shown.

    A formula has the value that was computed last, a number with a format such as 00000 its zeros, and a merged range one value.

    Args:
        path: An .xlsx file.

    Yields:
        The values of each row, with None for empty cells; empty cells at the end are left out.

    Raises:
        InputError: If the file is not a workbook, or is damaged.
        OSError: If the file cannot be opened.
    """
    openpyxl = import_openpyxl()
    with Path(path).open("rb") as file:
        try:
            rows, marks = _open_sheet(openpyxl, path, file)
        except MemoryError:
            raise
        except Exception as error:  # a damaged archive makes openpyxl raise many kinds of errors
            raise _make_read_error(path, error) from error
        _warn_of_marks(path, marks)
        first_error, has_header = True, False
        merged_values: dict[int, tuple[int, Any]] = {}
        for number in count(1):
            cells = _read_next_row(rows, path)
            if cells is None:
                return
            if number > MAX_ROWS:
                message = f"{format_value(path)}: a row has a number above {MAX_ROWS:,}, the maximum of an .xlsx file."
                raise InputError(f"{message} Save it as .xlsx or .csv again.")
            if first_error and (error_cells := [cell for cell in cells if cell.data_type == "e"]):
                first_error = False
                _warn_of_error_cell(path, error_cells[0])
            values = _read_values(cells)
            if values and has_header:
                _fill_merged(values, number, marks, merged_values)
            elif number in marks.uncomputed_rows:
                values = [""]  # an empty text keeps the row
            has_header = has_header or bool(values)
            yield values


def _open_sheet(openpyxl: Any, path: str, file: IO[bytes]) -> tuple[Iterator[Sequence[Any]], SheetMarks]:
    """Open the first sheet of a workbook; return its rows of cells and its marks."""
    if is_strict(file):
        raise ValueError("it is Strict Open XML")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions, which contain no text
        workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
    worksheet, *unread_worksheets = workbook.worksheets
    if unread_worksheets:
        titles = format_names([unread.title for unread in unread_worksheets])
        message = f"{format_value(path)}: reading only the first sheet, {format_value(worksheet.title)}, not {titles}."
        warnings.warn(message, stacklevel=3)
    marks = read_marks(file, worksheet._worksheet_path)
    worksheet.reset_dimensions()  # some programs write wrong ones
    return worksheet.iter_rows(max_row=MAX_ROWS + 1), marks  # openpyxl yields a row for each number that is missing


def _read_values(cells: Sequence[Any]) -> list[Any]:
    values = [_read_value(cell) for cell in cells]
    while values and values[-1] is None:
        values.pop()
    return values


def _fill_merged(values: list[Any], number: int, marks: SheetMarks, merged_values: dict[int, tuple[int, Any]]) -> None:
    """Put the value of each merged range that a row lies in into the row, and remember those of ranges that begin in it."""
    from openpyxl.utils import column_index_from_string

    for column, (last_row, value) in merged_values.items():
        if number <= last_row:
            values += [None] * (column + 1 - len(values))
            values[column] = value if values[column] is None else values[column]
    for name, last_row in marks.merged.get(number, ()):
        column = column_index_from_string(name) - 1
        merged_values[column] = last_row, values[column] if column < len(values) else None


def _warn_of_marks(path: str, marks: SheetMarks) -> None:
    place = format_value(path)
    if marks.first_uncomputed:
        message = (
            f"{place}: cell {marks.first_uncomputed} contains a formula without a value, as do {len(marks.uncomputed_rows):,} "
            "rows in all. They are read as empty. Open the file in a spreadsheet program and save it."
        )
        warnings.warn(message, stacklevel=3)
    if marks.first_merged:
        message = f"{place}: merged cells, such as {marks.first_merged}, are read as if each of their rows had the value."
        warnings.warn(message, stacklevel=3)


def _read_next_row(rows: Iterator[Sequence[Any]], path: str) -> Sequence[Any] | None:
    try:
        return next(rows, None)
    except MemoryError:
        raise
    except Exception as error:
        raise _make_read_error(path, error) from error


def _read_value(cell: Any) -> Any:
    """Read the value of a cell: None for an error such as #N/A, and a date if the number format shows no time."""
    value = cell.value
    if cell.data_type == "e":
        return None
    if isinstance(value, str):
        from openpyxl.utils.escape import unescape

        return unescape(value)
    if isinstance(value, datetime.datetime):
        from openpyxl.styles.numbers import is_datetime

        return value.date() if is_datetime(cell.number_format) == "date" else value
    if isinstance(value, int) and value >= 0 and DIGITS_FORMAT.fullmatch(str(cell.number_format)):
        return _show_digits(value, cell.number_format)
    return value


def _show_digits(value: int, number_format: str) -> str:
    """Show a number under a format such as 00000 or 000-00-0000."""
    digits = list(str(value).zfill(number_format.count("0")))
    num_surplus = len(digits) - number_format.count("0")
    text = "".join(digits.pop() if character == "0" else character for character in reversed(number_format))[::-1]
    return "".join(digits) + text if num_surplus else text


def _warn_of_error_cell(path: str, cell: Any) -> None:
    message = (
        f"{format_value(path)}: cell {cell.coordinate} contains the error {format_value(cell.value)}. "
        "Cells with errors are read as empty."
    )
    warnings.warn(message, stacklevel=3)


def _make_read_error(path: str, error: Exception) -> InputError:
    reason = str(error) or type(error).__name__
    return InputError(
        f"{format_value(path)} cannot be read as an .xlsx file ({format_value(reason)}). Save it as .xlsx or .csv again."
    )


def write_sheet(columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Write a workbook of one sheet. Texts that look like formulas are written as texts.

    Args:
        columns: The header.
        rows: The rows: texts, numbers, booleans, dates or None; values of other types are written as text.
        path: An .xlsx file.

    Raises:
        InputError: If there are more rows or columns than a sheet can hold.
    """
    openpyxl = import_openpyxl()
    if len(rows) >= MAX_ROWS:
        raise InputError(f"{len(rows):,} rows are more than the {MAX_ROWS - 1:,} that an .xlsx file can hold. Write a .csv.")
    if len(columns) > MAX_COLUMNS:
        raise InputError(f"{len(columns):,} columns are more than the {MAX_COLUMNS:,} that an .xlsx file can hold. Write a .csv.")
    workbook = openpyxl.Workbook(write_only=True)
    worksheet = workbook.create_sheet("rows")
    worksheet.freeze_panes = "A2"
    illegal = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE
    num_cut = 0
    for row in (columns, *rows):
        values = [_convert_value(value) for value in row]
        num_cut += sum(isinstance(value, str) and len(value) > MAX_CELL_CHARACTERS for value in values)
        cells = [illegal.sub("\ufffd", value)[:MAX_CELL_CHARACTERS] if isinstance(value, str) else value for value in values]
        worksheet.append([_make_text_cell(openpyxl, worksheet, cell) if isinstance(cell, str) else cell for cell in cells])
    workbook.save(path)
    if num_cut:
        message = (
            f"{num_cut} cells were cut to {MAX_CELL_CHARACTERS:,} characters, the maximum of an .xlsx file. A .csv has no limit."
        )
        warnings.warn(message, stacklevel=3)


def _convert_value(value: Any) -> Any:
    """Convert a value to one that a cell can hold."""
    if is_missing(value):
        return None
    if isinstance(value, np.floating):
        value = shorten_digits(float(value), type(value))
    is_number = isinstance(value, (int, float, Decimal)) and abs(value) != math.inf
    if is_number and (isinstance(value, float) or len(Decimal(value).normalize().as_tuple().digits) <= MAX_DIGITS):
        return value
    if isinstance(value, datetime.date) and value.year >= FIRST_YEAR and getattr(value, "tzinfo", None) is None:
        return value
    if isinstance(value, datetime.timedelta) or (isinstance(value, datetime.time) and value.tzinfo is None):
        return value
    return clean_text(to_text(value))


def _make_text_cell(openpyxl: Any, worksheet: Any, text: str) -> Any:
    escaped = ESCAPE_LIKE.sub("_x005F_", text).replace("\r", "_x000D_")
    cell = openpyxl.cell.WriteOnlyCell(worksheet, escaped)
    cell.data_type = "s"
    return cell
