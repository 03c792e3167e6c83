"""One self-contained HTML page: maps, groups, cross tables, changes over time and the texts of one corpus under its questions.

The page holds its style, its script and its data and needs no network; a content security policy forbids any. Texts are
untrusted: the templates escape them, and the script only ever sets text content.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from inbedder.errors import InputError
from inbedder.grouping.crosstab import CrossTable, crosstab
from inbedder.grouping.naming import deduplicate_group_names
from inbedder.grouping.report import page_data
from inbedder.grouping.report.maps import HEIGHT, WIDTH
from inbedder.grouping.report.views import DARK, LIGHT, make_view
from inbedder.io.files import atomic_write
from inbedder.io.outputs import import_jinja2
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from inbedder.grouping.grouped_texts import GroupedTexts
    from inbedder.grouping.over_time import OverTime


def save_report(
    results: Sequence[GroupedTexts],
    path: str | os.PathLike[str],
    *,
    title: str = "inbedder report",
    crossings: Sequence[CrossTable] | None = None,
    timelines: Sequence[OverTime] = (),
    numbers: Sequence[int] | None = None,
) -> None:
    """Write the page of one or several groupings of one corpus.

    Args:
        results: One grouping per instruction, all of the same n texts.
        path: The page's file; an existing one is replaced only when the whole page is there.
        title: Heading of the page.
        crossings: Cross tables, as ``crosstab`` makes them; None crosses the groupings with each other.
        timelines: The groupings over time, as ``over_time`` makes them.
        numbers: Row number of each text, n; None counts from 1.

    Raises:
        InputError: When there is nothing to report, the texts differ, or the file cannot be written.
    """
    if crossings is None and not timelines:  # cross tables already contain the groups' names
        results = deduplicate_group_names(results)
    page = render_report(results, title=title, crossings=crossings, timelines=timelines, numbers=numbers)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def render_report(
    results: Sequence[GroupedTexts],
    *,
    title: str = "inbedder report",
    crossings: Sequence[CrossTable] | None = None,
    timelines: Sequence[OverTime] = (),
    numbers: Sequence[int] | None = None,
) -> str:
    """Make the page of one or several groupings of one corpus.

    Args:
        results: One grouping per instruction, all of the same n texts.
        title: Heading of the page.
        crossings: Cross tables, as ``crosstab`` makes them; None crosses the groupings with each other.
        timelines: The groupings over time, as ``over_time`` makes them.
        numbers: Row number of each text, n; None counts from 1.

    Returns:
        The HTML, which encodes as UTF-8.

    Raises:
        InputError: When there is nothing to report, or the texts or groupings differ.
    """
    if not results or not results[0].texts:
        raise InputError("There is nothing to report: cluster at least one text under at least one instruction.")
    texts = results[0].texts
    if any(result.texts != texts for result in results):
        raise InputError("The results are about different texts; a report compares groupings of one corpus.")
    if crossings is None:
        crossings = crosstab(results) if len(results) > 1 else []
    every_table = [*crossings, *(timeline.table for timeline in timelines)]
    if any(len(side.category_of) != len(texts) for table in every_table for side in (table.rows, table.columns)):
        raise InputError("A cross table or a timeline is of other texts than the results. Make it from these results.")
    row_ids = page_data.sample_rows(results)
    views = [make_view(result) for result in results]
    dimensions = page_data.Dimensions(results)
    heats = [page_data.make_heat(table, dimensions) for table in crossings]
    timeline_heats = [page_data.make_heat(timeline.table, dimensions) for timeline in timelines]
    over_time = list(zip(timeline_heats, timelines, map(page_data.make_charts, timelines), strict=True))
    if any(heat.rows >= len(views) for heat in timeline_heats):
        raise InputError("A timeline is of a grouping that is not among the results. Make it from these results.")
    every_heat = [*heats, *timeline_heats]
    return _fill_template(
        title=title,
        total=len(texts),
        shown_count=len(row_ids),
        cut=any(len(texts[row]) > page_data.ROW_TEXT for row in row_ids),
        longest=page_data.ROW_TEXT,
        room=page_data.MAX_CHARACTERS,
        views=views,
        dimensions=[(dimensions.title(number), kind.names) for number, kind in enumerate(dimensions.all)],
        heats=heats,
        over_time=over_time,
        answered=any(any(result.answers) for result in results),
        data=page_data.collect_page_data(results, views, dimensions, every_heat, row_ids, numbers or range(1, len(texts) + 1)),
        light=LIGHT,
        dark=DARK,
        size=(WIDTH, HEIGHT),
    )


def _fill_template(**values: object) -> str:
    """Fill in the template."""
    jinja2 = import_jinja2()
    from markupsafe import Markup

    def read(name: str) -> str:
        return files("inbedder.grouping.report").joinpath(name).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()  # the policy allows this script and no other
    template = environment.get_template("page.html.j2")
    return clean_text(template.render(script=Markup(script), digest=digest, style=Markup(read("page.css")), **values))
