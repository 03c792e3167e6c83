"""Small HTML tables, by which notebooks display results (``_repr_html_``).

Titles and cells are texts of a corpus or of a model, and are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

MAX_ROWS = 30
MAX_COLUMNS = 12
MAX_CHARACTERS = 160
"""Maximum number of characters of a cell that are shown."""


def render_html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Render a table as HTML.

    Args:
        title: The line above the table.
        columns: c column names.
        rows: r rows of c cells: text, integers (aligned to the right), or lists of text (one line each).

    Returns:
        The HTML, with at most ``MAX_ROWS`` rows and ``MAX_COLUMNS`` columns; a last line counts those that are not shown.

    Example:
        >>> render_html_table("Sizes", ["name", "texts"], [["<b>", 2]]).count("&lt;b&gt;")
        1
    """
    head = "".join(f'<th style="text-align: left" dir="auto">{_render_text(name)}</th>' for name in columns[:MAX_COLUMNS])
    body = "".join(f"<tr>{''.join(map(_render_cell, row[:MAX_COLUMNS]))}</tr>" for row in rows[:MAX_ROWS])
    hidden_counts = {"rows": len(rows) - MAX_ROWS, "columns": len(columns) - MAX_COLUMNS}
    note = " and ".join(f"{count} more {name}" for name, count in hidden_counts.items() if count > 0)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div><p dir="auto">{_render_text(title)}</p>{table}{f"<p>… {note}</p>" if note else ""}</div>'


def _render_cell(value: Any) -> str:
    if isinstance(value, int):
        return f'<td style="text-align: right">{value:,}</td>'
    lines = value if isinstance(value, list) else [value]
    return f'<td style="text-align: left" dir="auto">{"<br>".join(map(_render_text, lines))}</td>'


def _render_text(value: Any) -> str:
    """Escape a text in one line, cut at ``MAX_CHARACTERS``."""
    text = " ".join(str(value).split())
    return escape(text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…")
