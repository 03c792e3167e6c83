"""Cells of a .csv or .tsv, quoted and guarded so that no spreadsheet splits them or runs them as formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Number
from typing import Any

from inbedder.io.cell_values import is_missing, to_text
from inbedder.prompting.tokenization import clean_text

DELIMITERS = ",;\t|"
"""Possible field delimiters of a .csv; of equally good ones the first is used."""
QUOTED_CHARACTERS = DELIMITERS + '"\r\n'
"""Characters that make a cell quoted, because some spreadsheet would split the row there."""
FORMULA_STARTS = "=+-@\uff1d\uff0b\uff0d\uff20\t\r\n"
"""First characters that make a spreadsheet read a cell as a formula, also in full width (OWASP, "CSV Injection"). A text with
apostrophes before them gets one more, so that reading, which takes one away, gives back every text."""
NUMBER_PATTERN = r"[+-][0-9.,]*%?"
"""Numbers that begin with such a character, and the dash of a missing number."""
_NUMBER = re.compile(NUMBER_PATTERN)


def format_row(cells: Iterable[Any], delimiter: str, *, guard_cells: bool = True) -> str:
    """Format a line of a .csv or .tsv; ``guard_cells`` puts an apostrophe before texts that spreadsheets run as formulas."""
    texts = [_to_cell_text(cell, guard=guard_cells) for cell in cells]
    line = delimiter.join(map(_quote, texts))
    return (line or '""' * len(texts)) + "\r\n"  # a row of one empty cell is not a blank line


def _to_cell_text(cell: Any, *, guard: bool) -> str:
    """Convert a cell to text, and guard what it became, unless it is a number."""
    text = "" if is_missing(cell) else clean_text(to_text(cell))
    is_formula = _starts_as_formula(text) and not isinstance(cell, Number) and not _NUMBER.fullmatch(text)
    return f"'{text}" if guard and is_formula else text


def remove_guard(text: str) -> str:
    """Remove the apostrophe that guards a cell."""
    return text[1:] if text.startswith("'") and _starts_as_formula(text) else text


def _starts_as_formula(text: str) -> bool:
    return text.lstrip("'").startswith(tuple(FORMULA_STARTS))


def _quote(text: str) -> str:
    if not any(character in text for character in QUOTED_CHARACTERS):
        return text
    return '"' + text.replace('"', '""') + '"'
