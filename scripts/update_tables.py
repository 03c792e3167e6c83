#!/usr/bin/env python3
"""Write the tables of README.md, of the bundled model's card and of evaluation/ and finetune/ from evaluation/results/*.json.

python scripts/update_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from evaluation.results import load_cells, markdown, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evaluation" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "inbedder" / "models" / "mini" / "README.md",
    ROOT / "evaluation" / "README.md",
    ROOT / "finetune" / "README.md",
)
TABLE = re.compile(r"(<!-- results of (\S+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables made anew, tasks down and models across.

    Args:
        page: Markdown with tables between ``<!-- results of FILE.json -->`` and ``<!-- end of results -->``.

    Returns:
        The page.
    """

    def fill(match: re.Match[str]) -> str:
        tasks_down = [list(row) for row in zip(*table(load_cells(RESULTS / match[2])), strict=True)]
        return f"{match[1]}{markdown(tasks_down)}\n{match[3]}"

    return TABLE.sub(fill, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
