#!/usr/bin/env python3
"""Write the tables of README.md, the bundled model's card, evaluation/ and finetune/ from the committed results (*.json).

python scripts/update_tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from evaluation.paper import published_table
from evaluation.results import load_cells, markdown, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evaluation" / "results"
EXPERIMENTS = ROOT / "finetune" / "results"
BENCHMARKS = ROOT / "scripts" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "inbedder" / "models" / "mini" / "README.md",
    ROOT / "inbedder" / "models" / "small" / "README.md",
    ROOT / "evaluation" / "README.md",
    ROOT / "evaluation" / "PAPER.md",
    ROOT / "finetune" / "README.md",
    ROOT / "finetune" / "results" / "mini.md",
    ROOT / "finetune" / "results" / "small.md",
)
MOST_ACROSS = 9
TABLE = re.compile(r"(<!-- results of (\S+)(?: by (\S+))? -->\n).*?(<!-- end of results -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables made anew: tasks down and models across, unless there are more models than fit.

    Args:
        page: Markdown with tables between ``<!-- results of FILE.json -->`` (main scores; with " by SCORE", another one) and
            ``<!-- end of results -->``.

    Returns:
        The page.
    """

    def fill(match: re.Match[str]) -> str:
        if match[2] in BESIDE:
            return f"{match[1]}{markdown(BESIDE[match[2]]())}\n{match[4]}"
        if (BENCHMARKS / match[2]).exists():
            return f"{match[1]}{markdown(ratios(BENCHMARKS / match[2]))}\n{match[4]}"
        path = next(path for path in (RESULTS / match[2], EXPERIMENTS / match[2]) if path.exists())
        if rows := own_table(path):
            return f"{match[1]}{markdown(rows)}\n{match[4]}"
        rows = table(load_cells(path), score=match[3])
        if len(rows) <= MOST_ACROSS:
            rows = [list(column) for column in zip(*rows, strict=True)]
        return f"{match[1]}{markdown(rows)}\n{match[4]}"

    return TABLE.sub(fill, page)


def on_written_sets() -> list[list[str]]:
    """The table of the bundled models and their bases on the sets written after the paper's.

    Returns:
        Rows of cells, the header first.
    """
    cells = [cell for name in ("mini", "small") for cell in load_cells(RESULTS / f"{name}.json")]
    return table([cell for cell in cells if cell.task.endswith("(written)")])


BESIDE = {"paper.json": published_table, "beside_the_paper": on_written_sets}
"""Tables that no file of results holds alone."""


def own_table(path: Path) -> list[list[str]]:
    """The table that a file of results holds itself.

    Args:
        path: A file of results.

    Returns:
        Rows of cells, the header first; none where it holds cells of evaluation.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    return list(content.get("table", [])) if isinstance(content, dict) else []


def ratios(path: Path) -> list[list[str]]:
    """The table of a benchmark: each case's median ratio with its spread, those of tiny models left out.

    Args:
        path: What ``scripts/benchmark.py`` wrote.

    Returns:
        Rows of cells, the header first.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [["two ways, side by side", "ratio", "from", "to", "goal"]]
    for case in content["cases"]:
        if "ratio" in case and " tiny: " not in case["name"]:
            rows.append([case["name"], *(f"{case[column]:.1f}" for column in ("ratio", "smallest", "largest", "goal"))])
    return rows


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
