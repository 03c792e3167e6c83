"""The texts that the page holds, with all that they can be picked out by, and the cross tables whose cells open them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.crosstab import Categories, CrossTable, categorize_groups
from inbedder.grouping.report.views import ANSWER_TEXT, View, clip, resolve_question

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.over_time import OverTime

MAX_ROWS = 50_000
MAX_CHARACTERS = 10_000_000
"""Of all texts and answers in a page."""
ROW_TEXT = 2000


@dataclass(frozen=True, eq=False)
class Heat:
    """A cross table as the page shows it."""

    table: CrossTable
    rows: int
    """Number of the dimension of the rows (see ``Dimensions``)."""
    columns: int
    strength: list[list[float]]
    """Colour of each cell: its residual, -1 (8 or more below chance) to 1."""
    rand_index: float | None
    """Adjusted Rand index of two groupings; None against a column."""


@dataclass(frozen=True, eq=False)
class Chart:
    """One group over time as the page shows it."""

    group: int
    name: str
    direction: str
    first: float
    last: float
    false_discovery_rate: float
    max_share: float
    """The largest share, where the chart ends."""
    shares: list[float | None]


def sample_rows(results: Sequence[GroupedTexts]) -> NDArray[np.int64]:
    """Return the row numbers of the page's texts, from 0 and in order: all, or a random sample if it cannot hold all."""
    texts = results[0].texts
    characters = sum(min(len(text), ROW_TEXT) for text in texts)
    characters += sum(min(len(answer), ANSWER_TEXT) for result in results for answer in result.answers)
    fitting = min(MAX_ROWS, int(len(texts) * MAX_CHARACTERS / max(characters, 1)))
    if fitting >= len(texts):
        return np.arange(len(texts))
    return np.sort(np.random.default_rng(0).permutation(len(texts))[: max(fitting, 1)])


class Dimensions:
    """The categorizations of the texts that a page shows, each once."""

    def __init__(self, results: Sequence[GroupedTexts]) -> None:
        """Start with the groupings, one per question."""
        self.all = [categorize_groups(result) for result in results]
        self.questions = len(self.all)

    def find(self, categories: Categories) -> int:
        """Find the number of a categorization, from 0; a new one is added."""
        for number, known in enumerate(self.all):
            is_same = known.title == categories.title and known.names == categories.names
            if is_same and np.array_equal(known.category_of, categories.category_of):
                return number
        self.all.append(categories)
        return len(self.all) - 1

    def title(self, number: int) -> str:
        """Get the title of a categorization by its number: the question, or the column's name."""
        title = self.all[number].title
        return resolve_question(title) if number < self.questions else clip(title, ANSWER_TEXT)


def make_heat(table: CrossTable, dimensions: Dimensions) -> Heat:
    """Prepare a cross table, with its colours, for the page."""
    from sklearn.metrics import adjusted_rand_score

    rows, columns = dimensions.find(table.rows), dimensions.find(table.columns)
    are_groupings = columns < dimensions.questions
    index = float(adjusted_rand_score(table.rows.category_of, table.columns.category_of)) if are_groupings else None
    return Heat(table, rows, columns, np.clip(table.residuals / 8, -1, 1).round(2).tolist(), index)


def make_charts(timeline: OverTime) -> list[Chart]:
    """Prepare a grouping over time for the page: a chart per group, the most certain change first."""
    charts = [
        Chart(
            group=number,
            name=clip(name, ANSWER_TEXT),
            direction=change.direction,
            first=100 * change.first,
            last=100 * change.last,
            false_discovery_rate=change.false_discovery_rate,
            max_share=max(100 * float(np.nanmax(shares)), 1e-9),
            shares=[None if math.isnan(share) else round(100 * share, 2) for share in shares.tolist()],
        )
        for number, (name, change, shares) in enumerate(
            zip(timeline.table.rows.names, timeline.changes, timeline.shares, strict=True)
        )
    ]
    return sorted(charts, key=lambda chart: chart.false_discovery_rate)


def collect_page_data(
    results: Sequence[GroupedTexts],
    views: Sequence[View],
    dimensions: Dimensions,
    heats: Sequence[Heat],
    row_ids: NDArray[np.int64],
    numbers: Sequence[int],
) -> dict[str, Any]:
    """Collect the data of the page's script.

    Args:
        results: The groupings.
        views: As the page shows them.
        dimensions: All categorizations.
        heats: The cross tables.
        row_ids: The texts that the page holds.
        numbers: Row number of each text.

    Returns:
        Lists, numbers and strings.
    """
    return {
        "numbers": [int(numbers[row]) for row in row_ids],
        "texts": [clip(results[0].texts[row], ROW_TEXT) for row in row_ids],
        "dimensions": [
            {
                "title": dimensions.title(number),
                "names": [clip(name, ANSWER_TEXT) for name in kind.names],
                "of": kind.category_of[row_ids].tolist(),
            }
            for number, kind in enumerate(dimensions.all)
        ],
        "views": [
            {
                "question": view.question,
                "colours": [group.colour for group in view.groups],
                "marks": [mark[:4] for mark in view.marks],
                "markOf": view.mark_of[row_ids].tolist(),
                "answers": [clip(result.answers[row], ANSWER_TEXT) for row in row_ids],
            }
            for result, view in zip(results, views, strict=True)
        ],
        "tables": [
            {
                "rows": heat.rows,
                "columns": heat.columns,
                "counts": heat.table.counts.tolist(),
                "lift": [[None if math.isnan(lift) else round(lift, 3) for lift in line] for line in heat.table.lift.tolist()],
                "residuals": heat.table.residuals.round(3).tolist(),
                "differs": heat.table.differs.tolist(),
            }
            for heat in heats
        ],
    }
