#!/usr/bin/env python3
"""Write the tables of the pages from the committed results. ``tables.yaml`` describes every table.

python scripts/dev/update_tables.py

A page shows a table between ``<!-- table: NAME -->`` and ``<!-- end of table -->``. A description holds:

- ``page`` and ``caption``: the page, and the sentences under the table.
- ``file``: the results file of the columns that name no other.
- ``rows``: a list of mappings, or ``path``, which leads to records of ``file``. A row's fields fill ``{placeholders}``.
- ``columns``: each has a ``head`` and one of ``text`` (with placeholders), ``path``, ``best_of`` and ``better``.
- ``paper``, in place of ``rows`` and ``columns``: a list of scripts/reproduce.

A ``path`` is a list of keys. A key such as ``set=hwu64&criterion=label`` chooses a record of a list, ``*`` takes the mean over
all of them. Where rows are records and the column names no file, the path begins at the row's record. ``format`` is Python's.

Cells of ``inbedder evaluate`` are at ``[model, task]``, as "mean ± standard deviation" or "score [95% interval]"; ``plain`` (of a
column or a table) leaves the bare score, and ``score`` names another score than the main one. In a row with a ``criterion``,
those of ``inbedder evaluate --table`` are at ``[model, task, mean]`` and ``[model, task, worst]``, over the wordings. A
row with ``mean_of_rows: true`` holds the mean of the rows above it.

``best_of`` is a list of paths, of which the highest score is shown. ``better`` names two lists of columns and prints which of the
first exceed all of the second. A row's ``cells`` replace columns by their heads.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from inbedder_evaluation.results import format_markdown, load_cells, make_table
from inbedder_evaluation.score_tables import summarize_wordings

ROOT = Path(__file__).resolve().parents[2]
MARKED_TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


@lru_cache
def read_descriptions() -> dict[str, dict[str, Any]]:
    """Read the descriptions of all tables, by name."""
    return dict(yaml.safe_load((Path(__file__).parent / "tables.yaml").read_text(encoding="utf-8")))


def list_pages() -> list[Path]:
    """List the pages with tables."""
    return [ROOT / name for name in dict.fromkeys(description["page"] for description in read_descriptions().values())]


@lru_cache
def load_results(file: str, score: str | None) -> Any:
    """Load a results file.

    Args:
        file: Path from the root of the repository.
        score: Which score of the cells of ``inbedder evaluate``; None is the main one.

    Returns:
        The content; of a file of cells, each score's text by model and task.
    """
    content = json.loads((ROOT / file).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "cells" not in content or "version" not in content:
        return content
    (_, *tasks), *rows = make_table(load_cells(ROOT / file), score=score)
    return {model: dict(zip(tasks, scores, strict=True)) for model, *scores in rows}


@lru_cache
def load_wording_scores(file: str, criterion: str) -> dict[str, dict[str, dict[str, float]]]:
    """Load the mean and the worst score over the wordings of a question, by model and task.

    Args:
        file: Path from the root of the repository, of a file of ``inbedder evaluate --table``.
        criterion: Name of the score. A task without a question has one score, which is every model's.
    """
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in load_cells(ROOT / file):
        if f"{criterion} 1" in cell.scores:
            groups.setdefault((cell.model, cell.task), []).append(cell)
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for (model, task), cells in groups.items():
        scores.setdefault(model, {})[task] = dict(zip(("mean", "worst"), summarize_wordings(cells, criterion), strict=True))
    unasked = {
        task: score for model_scores in scores.values() for task, score in model_scores.items() if task.endswith("no question")
    }
    return {model: unasked | model_scores for model, model_scores in scores.items()}


def look_up(content: Any, path: Sequence[str]) -> Any:
    """Follow a path into nested mappings and lists.

    Args:
        content: What the path leads into.
        path: Keys, as in the module's docstring.

    Returns:
        The value; None where a key is missing.
    """
    for place, key in enumerate(path):
        if key == "*":
            return mean(look_up(record, path[place + 1 :]) for record in content)
        if isinstance(content, list):
            conditions = [condition.split("=", 1) for condition in key.split("&")]
            content = next((record for record in content if all(str(record[name]) == value for name, value in conditions)), None)
        else:
            content = content.get(key)
        if content is None:
            return None
    return content


def list_rows(description: dict[str, Any]) -> list[dict[str, Any]]:
    """List the fields of each row; ``record`` holds the row's record, and ``key`` its name in a mapping of records."""
    rows = description["rows"]
    if isinstance(rows, list):
        return [dict(row) for row in rows]
    records = look_up(load_results(description["file"], None), rows["path"])
    keyed_records = records.items() if isinstance(records, dict) else enumerate(records)
    return [{"key": key, "record": record, **(record if isinstance(record, dict) else {})} for key, record in keyed_records]


def parse_leading_number(cell: str) -> float:
    """Read the score at the beginning of a cell; minus infinity where there is none."""
    return float(match[0]) if (match := re.match(r"-?[\d.]+", cell)) else float("-inf")


def render_cell(column: dict[str, Any], row: dict[str, Any], description: dict[str, Any], cells: dict[str, str]) -> str:
    """Render one cell.

    Args:
        column: The column's description.
        row: The row's fields.
        description: The table's.
        cells: The cells to the left, by head.

    Returns:
        Its text; empty where the results hold no value.
    """
    column = row.get("cells", {}).get(column["head"], column)
    if "text" in column:
        return str(column["text"]).format(**row)
    if "better" in column:
        models, baselines = ({name: parse_leading_number(cells[name]) for name in names} for names in column["better"])
        return ", ".join(name for name, score in models.items() if score > max(baselines.values())) or "none"
    if "best_of" in column:
        one_path = {key: value for key, value in column.items() if key != "best_of"}
        return max(
            (render_cell(one_path | {"path": path}, row, description, cells) for path in column["best_of"]),
            key=parse_leading_number,
        )
    path = [str(key).format(**row) for key in column["path"]]
    if "record" in row and "file" not in column:
        value = look_up(row["record"], path)
    else:
        file = column.get("file", description.get("file")).format(**row)
        by_wording = "criterion" in row and path[-1] in ("mean", "worst")
        score = column["score"].format(**row) if "score" in column else None
        value = look_up(load_wording_scores(file, row["criterion"]) if by_wording else load_results(file, score), path)
    if value is None:
        return ""
    if column.get("plain", description.get("plain")) and isinstance(value, str):
        value = value.split()[0]
    return str(column.get("format", "{}").format(value))


@lru_cache
def load_run_paper() -> Any:
    """Load scripts/reproduce/run_paper.py."""
    name = "run_paper"
    spec: Any = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "reproduce" / f"{name}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def render_rows(description: dict[str, Any]) -> list[list[str]]:
    """Render the cells of a table, the head first."""
    if "paper" in description:
        return list(load_run_paper().make_page_rows(description["paper"]))
    rows = [[column["head"] for column in description["columns"]]]
    for row in list_rows(description):
        cells: dict[str, str] = {}
        for number, column in enumerate(description["columns"]):
            if row.get("mean_of_rows") and "path" in column:
                cells[column["head"]] = f"{mean(parse_leading_number(above[number]) for above in rows[1:]):.1f}"
            else:
                cells[column["head"]] = render_cell(column, row, description, cells)
        rows.append(list(cells.values()))
    return rows


def render(description: dict[str, Any]) -> str:
    """Render a table and its caption as Markdown."""
    alignment = "---" if "paper" in description else "--:"
    return f"{format_markdown(render_rows(description), alignment)}\n\n{description['caption'].strip()}"


def with_tables(page: str) -> str:
    """Render the tables of a page anew.

    Args:
        page: Markdown.

    Returns:
        The page with today's tables.
    """
    return MARKED_TABLE.sub(lambda match: f"{match[1]}{render(read_descriptions()[match[2]])}\n{match[3]}", page)


if __name__ == "__main__":
    for path in list_pages():
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
