import re

import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.compare.timelines import make_timelines
from inbedder.grouping.report import page_data
from inbedder.grouping.report.page import render_report
from inbedder.io.csv_cells import FORMULA_STARTS, format_row
from tests.grouping.report.test_page import Page, find_dots, grouping


@pytest.mark.parametrize(("name", "room"), [("MAX_ROWS", 20), ("MAX_CHARACTERS", 20 * (7 + 8))])
def test_rows_beyond_the_budget_are_sampled_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch, name: str, room: int) -> None:
    monkeypatch.setattr(page_data, name, room)
    texts = [f"text {i:02}" for i in range(50)]
    html = render_report([grouping([0] * 30 + [1] * 20, texts=texts)], numbers=range(101, 151))
    data = Page(html).data
    assert len(data["texts"]) == len(data["views"][0]["markOf"]) == len(data["dimensions"][0]["categoryOf"]) == 20
    assert "random sample of 20 of the 50 texts" in html
    assert "30 texts · 60%" in html
    assert data["numbers"] == sorted(data["numbers"]) == [101 + int(text[5:]) for text in data["texts"]]
    assert len(find_dots(html)) == 50


def test_a_long_text_is_cut_and_the_page_says_so() -> None:
    html = render_report([grouping([0, 0], texts=["word " * 1000, "short\n\n text"])])
    assert [len(text) for text in Page(html).data["texts"]] == [2000, 10]
    assert Page(html).data["texts"][0].endswith("…") and "Texts are cut after 2,000 characters" in html
    assert "Texts are cut" not in render_report([grouping([0, 0])])


def test_significant_cells_are_marked() -> None:
    labels = [0] * 30 + [1] * 30
    cells = Page(render_report([grouping(labels)], cross_tables=crosstab(grouping(labels), {"kind": labels}))).cells
    assert [cell.count("▲") - cell.count("▼") for cell in cells[1][1:3]] == [1, -1]
    html = render_report([grouping(labels)], cross_tables=crosstab(grouping(labels), {"kind": labels}))
    assert html.count('<span class="visually-hidden">significantly more</span>') == 2
    assert "× <bdi>kind</bdi>" in html.replace('<span class="times">×</span>', "×") and "Adjusted Rand index <b>" not in html


def test_a_timeline_shows_one_chart_per_group_significant_changes_first() -> None:
    labels = [0, 1, 2] * 8 + [0, 0, 2] * 8
    dates = [f"2024-01-{1 + i // 3:02}" for i in range(48)]
    html = render_report([grouping(labels)], timelines=make_timelines(grouping(labels), [*dates[:-1], None]))
    charts = re.findall(r'aria-label="Share of ([^"]*)"', html)
    assert len(charts) == 3 and charts[-1].endswith("no clear change") and charts[-1].startswith("word2")
    assert {chart.rsplit(": ")[1] for chart in charts[:2]} == {"rising", "falling"}
    assert "1 text without a date is left out." in html
    assert Page(html).data["dimensions"][1]["names"][0] == "2024-01-01"
    assert Page(html).data["dimensions"][1]["categoryOf"][-1] == -1


def test_the_most_frequent_values_of_a_column_have_colours() -> None:
    values = [f"value {i:02}" for i in range(14) for _ in range(1 + (i == 7))]
    result = grouping([0, 1, *[0] * (len(values) - 2)])
    data = Page(render_report([result], cross_tables=crosstab(result, {"kind": values}))).data
    colours = dict(zip(data["dimensions"][1]["names"], data["dimensions"][1]["colours"], strict=True))
    assert colours["value 07"] == 0 and sorted(map(str, colours.values())) == sorted([*map(str, range(12)), "none", "none"])


def test_the_csv_of_the_page_has_the_rules_of_written_tables() -> None:
    rules = Page(render_report([grouping([0, 0])])).data["csv"]
    for text in [*(start + "a" for start in FORMULA_STARTS), "'=a", "''@a", "'a", "-1", "+5%", "a;b", "a\tb", 'a"b', "plain"]:
        is_formula = text.lstrip("'")[0] in rules["formulaStarts"] and not re.fullmatch(rules["number"], text)
        cell = "'" + text if is_formula else text
        is_quoted = any(character in cell for character in rules["quotedCharacters"])
        expected = '"' + cell.replace('"', '""') + '"' if is_quoted else cell
        assert format_row([text], ",") == expected + "\r\n"


def test_numbers_that_json_lacks_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0, 0, 1, 1]
    (table,) = crosstab(grouping(labels), {"kind": labels})
    monkeypatch.setattr(type(table), "lift", np.array([[np.nan, np.inf], [1.0, 2.0]]))
    data = Page(render_report([grouping(labels)], cross_tables=[table])).data
    assert data["tables"][0]["lift"] == [[None, None], [1.0, 2.0]]


def test_tables_of_other_texts_or_groupings_are_refused():
    result, longer_result = grouping([0, 1, 0, 1]), grouping([0, 1, 0, 1, 1])
    days = ["2024-01-01"] * 3 + ["2024-01-02"]
    with pytest.raises(InputError, match="covers other texts"):
        render_report([result], cross_tables=crosstab(longer_result, {"kind": list("abbab")}))
    with pytest.raises(InputError, match="not among the results"):
        render_report([result], timelines=make_timelines(grouping([0, 0, 1, 1]), days))
    assert 'data-table="0"' in render_report([result], timelines=make_timelines(result, days))
