"""Lines of text files, of bounded length and without byte order marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from inbedder.errors import InputError, format_value

MAX_LINE_CHARACTERS = 1 << 28
"""Maximum length of a line or a cell, so that no file can fill the memory with one."""
MAX_JSON_CHARACTERS = 1 << 30
"""Maximum length of a .json file, which is read as a whole."""
BYTE_ORDER_MARK = "\ufeff"


def iterate_lines(file: IO[str], source: str) -> Iterator[str]:
    """Yield each line with its end, without byte order marks; reject one above ``MAX_LINE_CHARACTERS`` before it is read."""
    number = 0
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARACTERS:
            raise InputError(
                f"{format_value(source)}, line {number}: it is longer than {MAX_LINE_CHARACTERS:,} characters, the maximum. "
                "Split it into rows."
            )
        yield line.lstrip(BYTE_ORDER_MARK)


def read_whole(file: IO[str], source: str) -> str:
    """Read a text as a whole; reject one above ``MAX_JSON_CHARACTERS``."""
    text = file.read(MAX_JSON_CHARACTERS + 1)
    if len(text) > MAX_JSON_CHARACTERS:
        raise InputError(
            f"{format_value(source)} is longer than {MAX_JSON_CHARACTERS:,} characters, the maximum of a .json file, which is "
            "read as a whole. Write one JSON object per line as .jsonl."
        )
    return text.lstrip(BYTE_ORDER_MARK)
