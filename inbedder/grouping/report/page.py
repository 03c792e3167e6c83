"""The HTML report of a corpus under one or several questions: maps, groups, cross tables, timelines and the texts.

The page contains its style, script and data, and its content security policy forbids any network access. Texts are untrusted:
the templates escape them, and the script only sets text content.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import CrossTable, crosstab
from inbedder.grouping.grouped_texts import deduplicate_group_names
from inbedder.grouping.report import page_data
from inbedder.grouping.report.further_questions import make_page_model
from inbedder.grouping.report.maps import HEIGHT, WIDTH
from inbedder.grouping.report.views import DARK, LIGHT, make_views
from inbedder.io.files import atomic_write
from inbedder.io.outputs import import_jinja2
from inbedder.prompting.tokenization import clean_text

if TYPE_CHECKING:
    from inbedder.embedder import InBedder
    from inbedder.grouping.compare.timelines import Timeline
    from inbedder.grouping.document_parts import DocumentParts
    from inbedder.grouping.grouped_texts import GroupedTexts

SCRIPT_PARTS = (
    "start",
    "texts",
    "drawer",
    "map_names",
    "map_picture",
    "map",
    "edits",
    "cross_tables",
    "merge_tables",
    "charts",
    "ask",
    "address",
)
"""The files of the page's script in their order; they share one scope. "ask" is for pages with a model."""


def save_report(
    results: Sequence[GroupedTexts],
    path: str | os.PathLike[str],
    *,
    title: str = "inbedder report",
    cross_tables: Sequence[CrossTable] | None = None,
    timelines: Sequence[Timeline] = (),
    numbers: Sequence[int] | None = None,
    parts: DocumentParts | None = None,
    page_model: InBedder | None = None,
) -> None:
    """Write the report of one or several groupings of one corpus.

    Args:
        results: One grouping per instruction, all of the same n texts.
        path: Path of the page; an existing file is replaced only by a complete page.
        title: Heading of the page.
        cross_tables: Cross tables from ``crosstab``; None cross-tabulates the groupings with each other.
        timelines: Timelines from ``make_timelines``.
        numbers: Row number of each text, n; None counts from 1.
        parts: The documents whose parts the texts are, or None.
        page_model: ``mini``, to write it into the page, which then answers further questions by itself and has 24 MB more.

    Raises:
        InputError: If there is nothing to report, the texts differ, the model cannot be in a page, or the file cannot be written.
    """
    if cross_tables is None and not timelines:  # otherwise the tables already hold the groups' names
        results = deduplicate_group_names(results)
    page = render_report(
        results,
        title=title,
        cross_tables=cross_tables,
        timelines=timelines,
        numbers=numbers,
        parts=parts,
        page_model=page_model,
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def render_report(
    results: Sequence[GroupedTexts],
    *,
    title: str = "inbedder report",
    cross_tables: Sequence[CrossTable] | None = None,
    timelines: Sequence[Timeline] = (),
    numbers: Sequence[int] | None = None,
    parts: DocumentParts | None = None,
    page_model: InBedder | None = None,
) -> str:
    """Render the report of one or several groupings of one corpus.

    Args:
        results: One grouping per instruction, all of the same n texts.
        title: Heading of the page.
        cross_tables: Cross tables from ``crosstab``; None cross-tabulates the groupings with each other.
        timelines: Timelines from ``make_timelines``.
        numbers: Row number of each text, n; None counts from 1.
        parts: The documents whose parts the texts are, or None.
        page_model: ``mini``, to write it into the page, which then answers further questions by itself and has 24 MB more.

    Returns:
        HTML that encodes as UTF-8.

    Raises:
        InputError: If there is nothing to report, the texts or groupings differ, or the model cannot be in a page.
    """
    if not results or not results[0].texts:
        raise InputError("There is nothing to report: cluster at least one text under at least one instruction.")
    texts = results[0].texts
    if any(result.texts != texts for result in results):
        raise InputError("The results hold different texts. A report compares groupings of one corpus.")
    if cross_tables is None:
        cross_tables = crosstab(results) if len(results) > 1 else []
    all_tables = [*cross_tables, *(timeline.table for timeline in timelines)]
    if any(len(side.category_of) != len(texts) for table in all_tables for side in (table.rows, table.columns)):
        raise InputError("A cross table or timeline covers other texts than the results. Make it from these results.")
    row_ids = page_data.sample_rows(results)
    views = make_views(results)
    dimensions = page_data.Dimensions(results)
    heatmaps = [page_data.make_heatmap(table, dimensions) for table in cross_tables]
    timeline_heatmaps = [page_data.make_heatmap(timeline.table, dimensions) for timeline in timelines]
    charted_timelines = list(zip(timeline_heatmaps, timelines, map(page_data.make_charts, timelines), strict=True))
    if any(heatmap.rows >= len(views) for heatmap in timeline_heatmaps):
        raise InputError("A timeline belongs to a grouping that is not among the results. Make it from these results.")
    all_heatmaps = [*heatmaps, *timeline_heatmaps]
    return _fill_template(
        title=title,
        total=len(texts),
        shown_count=len(row_ids),
        has_truncated_texts=any(len(texts[row]) > page_data.MAX_TEXT_CHARACTERS for row in row_ids),
        max_text_characters=page_data.MAX_TEXT_CHARACTERS,
        has_parts=parts is not None,
        views=views,
        dimensions=[(dimensions.get_title(number), categories.names) for number, categories in enumerate(dimensions.all)],
        heatmaps=heatmaps,
        timelines=charted_timelines,
        answered=any(any(result.answers) for result in results),
        data=page_data.collect_page_data(
            results, views, dimensions, all_heatmaps, row_ids, numbers or range(1, len(texts) + 1), parts
        ),
        ask=None if page_model is None else make_page_model(page_model, [texts[row] for row in row_ids]),
        light=LIGHT,
        dark=DARK,
        size=(WIDTH, HEIGHT),
    )


def _fill_template(**values: object) -> str:
    """Fill the page's template."""
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
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    script = (
        "(() => {\n" + "\n".join(read(f"script/{part}.js") for part in SCRIPT_PARTS if part != "ask" or values["ask"]) + "})();"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()  # the policy allows only this script
    template = environment.get_template("page.html.j2")
    return clean_text(template.render(script=Markup(script), digest=digest, style=Markup(read("page.css")), **values))
