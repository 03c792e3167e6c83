"""What a sheet's XML says of its cells beyond their values: merged ranges, and formulas that no program has computed."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from typing import IO

CHUNK_BYTES = 1 << 20
OVERLAP_BYTES = 1 << 16
"""Bytes that are searched again with the next ones; a longer formula is not found."""
STRICT_NAMESPACE = b"purl.oclc.org/ooxml/spreadsheetml"
"""Of Strict Open XML, which openpyxl cannot read."""
_FORMULA = re.compile(
    rb'<(?:\w+:)?c r="([A-Z]{1,3}\d+)"(?![^>]*\bt="str")[^>]*><(?:\w+:)?f\b[^>]*?(?:/>|>[^<]*</(?:\w+:)?f>)'
    rb"(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>)|</(?:\w+:)?c>)"
)
_MERGED_RANGE = re.compile(rb'<(?:\w+:)?mergeCell ref="([A-Z]{1,3})(\d+):[A-Z]{1,3}(\d+)"')


@dataclass
class SheetMarks:
    """What is to be known before the rows of a sheet are read."""

    uncomputed_rows: set[int] = field(default_factory=set)
    """Numbers of the rows with formulas that have no value."""
    first_uncomputed: str = ""
    """The first such cell."""
    merged: dict[int, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    """By the first row of a merged range of several rows: its first column and its last row."""

    @property
    def first_merged(self) -> str:
        """The first column of the first such range, or an empty text."""
        if not self.merged:
            return ""
        first_row = min(self.merged)
        column, last_row = min(self.merged[first_row])
        return f"{column}{first_row}:{column}{last_row}"


def is_strict(file: IO[bytes]) -> bool:
    """Return whether a workbook is Strict Open XML."""
    with zipfile.ZipFile(file) as archive:
        return STRICT_NAMESPACE in archive.read("xl/workbook.xml")


def read_marks(file: IO[bytes], member: str) -> SheetMarks:
    """Find the marks in the XML of a workbook's sheet ``member``; KeyError without this sheet, BadZipFile if it is damaged."""
    marks = SheetMarks()
    with zipfile.ZipFile(file) as archive, archive.open(member) as xml:
        text = b""
        while chunk := xml.read(CHUNK_BYTES):
            text = text[-OVERLAP_BYTES:] + chunk
            for formula in _FORMULA.finditer(text):
                cell = formula[1].decode()
                marks.first_uncomputed = marks.first_uncomputed or cell
                marks.uncomputed_rows.add(int(cell.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")))
            for column, first, last in _MERGED_RANGE.findall(text):
                end = column.decode(), int(last)
                if int(last) > int(first) and end not in marks.merged.get(int(first), ()):
                    marks.merged[int(first)].append(end)
    return marks
