#!/usr/bin/env python3
"""Write the tables of README.md and of the bundled model's card from evaluation/results/mini.json.

python scripts/update_tables.py
"""

from __future__ import annotations

from pathlib import Path

from evaluation.results import load_cells, markdown, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evaluation" / "results" / "mini.json"
PAGES = (ROOT / "README.md", ROOT / "inbedder" / "models" / "mini" / "README.md")
START, END = "<!-- results -->", "<!-- end of results -->"


def with_table(page: str) -> str:
    """The page with its table made anew.

    Args:
        page: Markdown that holds both marks.

    Returns:
        The page.
    """
    before, rest = page.split(START)
    after = rest.split(END)[1]
    tasks_down = [list(row) for row in zip(*table(load_cells(RESULTS)), strict=True)]
    return f"{before}{START}\n{markdown(tasks_down)}\n{END}{after}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
