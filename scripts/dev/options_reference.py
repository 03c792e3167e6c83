#!/usr/bin/env python3
"""Write docs/options.md, the reference of every option of a model, from the dataclasses that define them.

python scripts/dev/options_reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from inbedder.options import EncodingOptions, ModelOptions, Reencoding, get_option_info

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"
EXAMPLE_SECTION = re.compile(r"^Example:$", re.MULTILINE)
INTRODUCTION = """# Options of a model

`InBedder(model, **options)` takes every option of this page. `model.replace(**options)` takes those of
`EncodingOptions`, and `cache`, `cache_size` and `text_memory`. `model.options` holds the values in use; `model.spec`, a
`VectorSpec`, holds what determines a vector.

All commands that load a model (`embed`, `answer`, `cluster`, `classify`, `suggest`, `compare-wordings`, `assign`,
`evaluate`, `index build`, `serve`) offer the same command-line options. `inbedder serve` also reads each option, except
`trust_remote_code`, from its YAML file and from the environment, where `max_length` is `INBEDDER_MAX_LENGTH`. A server
never runs code from a model's repository.

`scripts/dev/options_reference.py` writes this page.
"""


def render_page() -> str:
    """Render one table per dataclass of options, in Markdown."""
    sections = [INTRODUCTION]
    for dataclass in (ModelOptions, EncodingOptions, Reencoding):
        heading = f"## {dataclass.__name__}\n\n{EXAMPLE_SECTION.split(inspect.getdoc(dataclass) or '')[0].strip()}\n"
        rows = ["| option | command line | default | what it is |", "| --- | --- | --- | --- |", *_list_option_rows(dataclass)]
        sections.append(f"{heading}\n{chr(10).join(rows)}\n")
    return "\n".join(sections)


def _list_option_rows(dataclass: Any) -> Iterator[str]:
    """List the rows of an option table."""
    for option in fields(dataclass):
        info = get_option_info(option)
        flags = () if info.flags is None else info.flags or (f"--{option.name.replace('_', '-')}",)
        if option.name == "model":
            flags = ("--model",)  # each command declares it itself: serve takes several
        names = ", ".join(f"`{name}`" for flag in flags for name in flag.split("/"))
        if option.name == "reencoding":
            names = f"[{Reencoding.__name__}](#{Reencoding.__name__.lower()})"
        yield f"| `{option.name}` | {names} | `{option.default!r}` | {info.help.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
