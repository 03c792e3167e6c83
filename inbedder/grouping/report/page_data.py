"""The data of the page's script: texts, the categories that filter them, and cross tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inbedder.grouping.compare.crosstab import Categories, CrossTable, categorize_groups
from inbedder.grouping.document_parts import DocumentParts, describe_shares
from inbedder.grouping.grouped_texts import resolve_question
from inbedder.grouping.report.views import LIGHT, MAX_ANSWER_CHARACTERS, NO_COLOUR, View, clip
from inbedder.io.cell_values import to_json_value
from inbedder.io.csv_cells import FORMULA_STARTS, NUMBER_PATTERN, QUOTED_CHARACTERS

if TYPE_CHECKING:
    from inbedder.grouping.compare.timelines import Timeline
    from inbedder.grouping.grouped_texts import GroupedTexts

MAX_ROWS = 50_000
"""Maximum number of texts in a page."""
MAX_CHARACTERS = 10_000_000
"""Maximum number of characters of all texts and answers in a page."""
MAX_TEXT_CHARACTERS = 2000
"""Maximum number of characters of one text."""


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A cross table as the page shows it."""

    table: CrossTable
    rows: int
    """Number of the rows' dimension (see ``Dimensions``)."""
    columns: int
    """Number of the columns' dimension."""
    strength: list[list[float]]
    """Colour of each cell: its residual over 8, clipped to -1 .. 1."""


@dataclass(frozen=True, eq=False)
class Chart:
    """The timeline of one group as the page shows it."""

    group: int
    name: str
    direction: str
    first: float
    last: float
    false_discovery_rate: float
    max_share: float
    """The largest share in percent, the top of the chart."""
    shares: list[float | None]
    """Share of each period's texts in percent; None for a period without texts."""


def sample_rows(results: Sequence[GroupedTexts]) -> NDArray[np.int64]:
    """Sample the texts of the page.

    Args:
        results: Groupings of the same n texts.

    Returns:
        Positions in the corpus in rising order: all n, or a random sample if a page cannot hold all.
    """
    texts = results[0].texts
    characters = sum(min(len(text), MAX_TEXT_CHARACTERS) for text in texts)
    characters += sum(min(len(answer), MAX_ANSWER_CHARACTERS) for result in results for answer in result.answers)
    fitting = min(MAX_ROWS, int(len(texts) * MAX_CHARACTERS / max(characters, 1)))
    if fitting >= len(texts):
        return np.arange(len(texts))
    return np.sort(np.random.default_rng(0).permutation(len(texts))[: max(fitting, 1)])


class Dimensions:
    """The distinct categorizations of the texts that a page shows."""

    def __init__(self, results: Sequence[GroupedTexts]) -> None:
        """Add the groupings, one per question."""
        self.all = [categorize_groups(result) for result in results]
        self.questions = len(self.all)

    def find(self, categories: Categories) -> int:
        """Find the number of a categorization, from 0; add a new one."""
        for number, dimension in enumerate(self.all):
            is_same = dimension.title == categories.title and dimension.names == categories.names
            if is_same and np.array_equal(dimension.category_of, categories.category_of):
                return number
        self.all.append(categories)
        return len(self.all) - 1

    def get_title(self, number: int) -> str:
        """Get the title of a categorization by its number: the question, or the column's name."""
        title = self.all[number].title
        return resolve_question(title) if number < self.questions else clip(title, MAX_ANSWER_CHARACTERS)


def choose_colours(categories: Categories) -> list[int | str]:
    """Choose the colours of a column's values: one each for the most frequent values, none for the rest."""
    counts = np.bincount(categories.category_of[categories.category_of >= 0], minlength=len(categories.names))
    ranks = np.argsort(np.argsort(-counts, kind="stable"))
    return [int(rank) if rank < len(LIGHT) else NO_COLOUR for rank in ranks]


def make_heatmap(table: CrossTable, dimensions: Dimensions) -> Heatmap:
    """Prepare a cross table for the page."""
    rows, columns = dimensions.find(table.rows), dimensions.find(table.columns)
    return Heatmap(table, rows, columns, np.clip(table.residuals / 8, -1, 1).round(2).tolist())


def _list_shares(result: GroupedTexts, parts: DocumentParts | None, row_ids: NDArray[np.int64]) -> list[str]:
    """List the groups of the document of each text of the page; empty without documents."""
    if parts is None:
        return []
    lines = describe_shares(parts.measure_shares(result.labels, len(result.names)), result.names)
    return [clip(lines[parts.documents[row]], MAX_TEXT_CHARACTERS) for row in row_ids]


def make_charts(timeline: Timeline) -> list[Chart]:
    """Prepare a timeline for the page: one chart per group, the most significant change first."""
    charts = [
        Chart(
            group=number,
            name=clip(name, MAX_ANSWER_CHARACTERS),
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
    heatmaps: Sequence[Heatmap],
    row_ids: NDArray[np.int64],
    numbers: Sequence[int],
    parts: DocumentParts | None,
) -> dict[str, Any]:
    """Collect the data for the page's script.

    Args:
        results: The groupings.
        views: The views of the groupings.
        dimensions: All categorizations.
        heatmaps: The cross tables.
        row_ids: Positions of the page's texts.
        numbers: Row number of each text.
        parts: The documents whose parts the texts are, or None.

    Returns:
        A dictionary that JSON can hold; "csv" has the rules of ``csv_cells`` for the table that the page saves, and
        "answered" says whether an empty answer means that the model gave no answer.
    """
    all_colours = [[group.colour for group in view.groups] for view in views]
    all_colours += [choose_colours(categories) for categories in dimensions.all[len(views) :]]
    content = {
        "csv": {"formulaStarts": FORMULA_STARTS, "number": NUMBER_PATTERN, "quotedCharacters": QUOTED_CHARACTERS},
        "numbers": [int(numbers[row]) for row in row_ids],
        "total": len(results[0].texts),
        "texts": [clip(results[0].texts[row], MAX_TEXT_CHARACTERS) for row in row_ids],
        "dimensions": [
            {
                "title": dimensions.get_title(number),
                "names": [clip(name, MAX_ANSWER_CHARACTERS) for name in categories.names],
                "categoryOf": categories.category_of[row_ids].tolist(),
                "colours": colours,
            }
            for number, (categories, colours) in enumerate(zip(dimensions.all, all_colours, strict=True))
        ],
        "views": [
            {
                "question": view.question,
                "sizes": [group.size for group in view.groups],
                "marks": [mark[:4] for mark in view.marks],
                "markOf": view.mark_of[row_ids].tolist(),
                "answered": any(result.answers) and getattr(result.embeddings, "sample", None) is None,
                "answers": [clip(result.answers[row], MAX_ANSWER_CHARACTERS) for row in row_ids],
                "second": view.second_groups[row_ids].tolist(),
                "shares": _list_shares(result, parts, row_ids),
            }
            for result, view in zip(results, views, strict=True)
        ],
        "tables": [
            {
                "rows": heatmap.rows,
                "columns": heatmap.columns,
                "counts": heatmap.table.counts.tolist(),
                "lift": heatmap.table.lift.round(3).tolist(),
                "residuals": heatmap.table.residuals.round(3).tolist(),
                "differs": heatmap.table.differs.tolist(),
            }
            for heatmap in heatmaps
        ],
    }
    return dict(to_json_value(content))
