"""The page in a real browser, with its security policy, real keys and real clicks."""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.report import maps, page_data
from inbedder.io.csv_cells import FORMULA_STARTS
from inbedder.io.tables import read_table
from tests.grouping.report.conftest import MOOD, TOPIC
from tests.grouping.report.test_page import grouping

if TYPE_CHECKING:
    from playwright.sync_api import Page

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'too' {{ 7 * 7 }} <!-- ]]>"
FORMULAS = [start + "a" for start in FORMULA_STARTS.strip()]  # the page has no text that begins with white space


def texts_of(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def downloaded_rows(page: Page, folder: Path) -> list[list[str]]:
    with page.expect_download() as download:
        page.click(".download")
    assert download.value.suggested_filename == "texts.csv"
    download.value.save_as(folder / "texts.csv")
    with (folder / "texts.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def shown_tab(page: Page) -> list[str]:
    return list(page.evaluate("[...document.querySelectorAll('.panel:not([hidden])')].map(panel => panel.id)"))


def listed(page: Page) -> list[str]:
    return [text.split()[-1] for text in texts_of(page, ".rows tbody td:nth-child(2)")]


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.className || document.activeElement.id"))


def test_the_script_runs_and_no_other_does(browse: Callable[..., Page], errors: list[str]) -> None:
    alien = "<script>document.documentElement.dataset.alien = 1</script></body>"
    result = grouping([0] * 8 + [1] * 4, texts=[f"{NASTY} {i}" for i in range(12)], instruction=NASTY)
    page = browse([result], lambda html: html.replace("</body>", alien))
    assert page.evaluate("({...document.documentElement.dataset})") == {"dots": "12"}
    assert len(errors) == 1 and "Content Security Policy" in errors[0]
    page.click("#tab-texts")
    assert texts_of(page, ".rows tbody td:nth-child(2)")[3] == f"{NASTY} 3"
    assert page.evaluate("document.querySelectorAll('main img').length") == 0


def test_tabs_open_by_mouse_and_keys_and_one_panel_is_shown(page: Page, errors: list[str]) -> None:
    assert texts_of(page, ".tab") == ["What is it?", "Is it <b>good</b>?", "Cross tables", "Over time", "Texts"]
    assert shown_tab(page) == ["question-1"]
    page.click("#tab-cross-tables")
    assert shown_tab(page) == ["cross-tables"]
    press(page, "ArrowRight")
    assert shown_tab(page) == ["over-time"]
    press(page, "End", "ArrowRight")
    assert shown_tab(page) == ["question-1"]
    assert page.evaluate("[...document.querySelectorAll('[role=tab]')].map(tab => tab.tabIndex)") == [0, -1, -1, -1, -1]
    assert page.evaluate("document.querySelector('[role=tab]').getAttribute('aria-selected')") == "true"
    assert not errors


def test_a_click_on_a_cell_opens_its_texts_and_back_returns_to_it(page: Page) -> None:
    page.click("#tab-cross-tables")
    page.click(".heatmap button[data-row='1'][data-column='1']")
    assert shown_tab(page) == ["texts"]
    assert listed(page) == ["6", "7"]
    assert texts_of(page, ".match-count") == [
        "2 of 12 texts — What is it? “2 word1, more1” · Is it <b>good</b>? “2 word1, more1”"
    ]
    assert focused(page) == "heading-texts"
    page.click(".back")
    assert shown_tab(page) == ["cross-tables"]
    assert page.evaluate("document.activeElement.innerText.split('\\n')[0]") == "2"


def test_keys_move_through_a_table_describe_a_cell_and_open_it(page: Page) -> None:
    page.click("#tab-cross-tables")
    page.evaluate("document.querySelectorAll('.heatmap')[1].querySelector('button[tabindex=\"0\"]').focus()")
    press(page, "ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowUp", "ArrowDown")
    readout = page.evaluate("document.querySelectorAll('.heatmap')[1].parentElement.nextElementSibling.innerText")
    assert readout == "2 texts in “word1, more1” and “1”: 67% of the row, 50% of the column, lift 2.00, residual +1.4."
    press(page, "Enter")
    assert listed(page) == ["6", "7"]
    assert page.evaluate("document.querySelectorAll('.heatmap')[1].querySelectorAll('button[tabindex=\"0\"]').length") == 1


def test_cells_show_lift_or_residuals_when_asked(page: Page) -> None:
    page.click("#tab-cross-tables")
    first = "document.querySelector('.heatmap button b').textContent"
    assert page.evaluate(first) == "4"
    for kind, number in (("lift", "1.33"), ("residual", "+1.2"), ("count", "4")):
        page.evaluate(
            f"(s => {{ s.value = '{kind}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('.cell-content'))"
        )
        assert page.evaluate(first) == number


def test_the_search_finds_texts_and_answers_and_filters_narrow_it(page: Page) -> None:
    page.click(".search")
    page.keyboard.insert_text("TEXT 1")
    either = [str(i) for i in range(12) if "1" in f"{i} {TOPIC[i]} {MOOD[i]}"]
    assert shown_tab(page) == ["question-1"]
    press(page, "Enter")
    assert shown_tab(page) == ["texts"] and listed(page) == either != list(map(str, range(12)))
    page.click(".search")
    press(page, "End")
    page.keyboard.insert_text("1")
    assert listed(page) == ["11"]
    press(page, "Escape")
    assert len(listed(page)) == 12
    page.evaluate(
        "(s => { s.value = '3'; s.dispatchEvent(new Event('change')); })(document.querySelectorAll('.filters select')[2])"
    )
    assert listed(page) == ["0", "1", "8"] and texts_of(page, ".match-count") == ["3 of 12 texts — stars “5”"]
    page.click(".clear")
    assert len(listed(page)) == 12
    assert texts_of(page, ".match-count") == ["12 of 12 texts"]


def test_the_rows_shown_are_downloaded_as_a_csv_that_runs_no_formula(browse: Callable[..., Page], tmp_path: Path) -> None:
    texts = ['=HYPERLINK("x")', "plain", 'with "quotes", and commas', "-1+1", "ünï 😀", *FORMULAS, "-1.000,5%"]
    answers = ["@sum", "b", "a;=1+1", "d", "", *[""] * len(FORMULAS), ""]
    result = grouping([0, 1, *[0] * (len(texts) - 2)], texts=texts, answers=answers)
    page = browse([result], cross_tables=crosstab(result, {"stars": [1, 2, 3, 4, *[-5] * (len(texts) - 4)]}))
    page.click(".open")
    lines = downloaded_rows(page, tmp_path)
    name = "What is it?"
    assert lines[0] == ["row", "text", f"{name} (number)", f"{name} (group)", f"{name} (answer)", "stars"]
    assert [line[1] for line in lines[1:5]] == ["'" + texts[0], texts[2], "'" + texts[3], texts[4]]
    assert [line[1] for line in lines[5:]] == ["'" + text for text in FORMULAS] + ["-1.000,5%"]
    assert '"a;=1+1"' in (tmp_path / "texts.csv").read_text(encoding="utf-8-sig")
    assert lines[1] == ["1", "'" + texts[0], "1", "word0, more0", "'@sum", "1"]
    assert [line[5] for line in lines[1:5]] == ["1", "3", "4", "-5"]  # a number is no formula
    assert [record["row"] for record in read_table(str(tmp_path / "texts.csv"), "text").records][:4] == ["1", "3", "4", "5"]


def test_texts_that_fit_no_group_have_no_number_in_list_filter_and_csv(browse: Callable[..., Page], tmp_path: Path) -> None:
    page = browse([grouping([0, 0, 0, 1, 1, 2], left_out=2), grouping([0, 1, 0, 1, 0, 1])])
    assert [item.split("none")[0].strip() for item in texts_of(page, ".legend li") if "none" in item] == [""]
    assert page.evaluate("[...document.querySelector('select[data-dimension]').options].map(option => option.text)") == [
        "all", "1 word0, more0", "2 word1, more1", "none of these"
    ]  # fmt: skip
    page.click(".open")
    page.click(".clear")
    lines = downloaded_rows(page, tmp_path)
    assert lines[-1][2:4] == ["", "none of these"]
    assert lines[1][2:4] == ["1", "word0, more0"]


def test_arrow_keys_show_a_dot_with_its_answer_and_its_other_groups(page: Page) -> None:
    page.locator(".legend button").nth(1).click()
    page.evaluate("document.querySelector('.plane').focus()")
    press(page, "Escape", "ArrowRight", "ArrowRight", "ArrowRight")
    lines = texts_of(page, ".tip")[0].split("\n\n")
    assert lines[0] == "2 word1, more1" and lines[1] in {"text 6", "text 7", "text 8"} and lines[2] == "“answer 1”"
    assert lines[3].startswith("Is it <b>good</b>?")
    assert page.evaluate("[...document.querySelectorAll('.legend button')].map(b => b.ariaPressed).slice(0, 3)") == [
        "false",
        "true",
        "false",
    ]
    press(page, "Enter")
    assert texts_of(page, ".drawer h3") == [f"Row {1 + int(lines[1].split()[-1])}"] and focused(page) == "drawer"
    assert texts_of(page, ".drawer .quotes li") == [lines[1]]
    assert texts_of(page, ".drawer dt") == ["What is it?", "Is it <b>good</b>?", "stars", "sent"]
    press(page, "Escape")
    assert page.locator(".drawer").is_hidden() and focused(page) == "plane"
    press(page, "ArrowRight", "Enter")
    page.click(".open-area")
    assert shown_tab(page) == ["texts"] and len(listed(page)) == 1 and page.locator(".drawer").is_hidden()


def test_the_drawer_says_that_a_text_has_no_answer(browse: Callable[..., Page]) -> None:
    page = browse([grouping([0, 0], answers=["yes", ""])])
    page.evaluate("document.querySelector('.plane').focus()")
    answers = []
    for count in (1, 2):
        press(page, "Escape", *["ArrowRight"] * count, "Enter")
        answers += texts_of(page, ".drawer .answer")
        press(page, "Escape")
    assert sorted(answers) == ["no answer", "“yes”"]


def find_view_box(page: Page) -> list[float]:
    return [float(number) for number in page.evaluate("document.querySelector('.plane svg').getAttribute('viewBox')").split()]


def find_dot(page: Page, number: int) -> tuple[float, float]:
    """Find the centre of a dot of the first map on the screen."""
    box = page.locator("#question-1 .dots > *").nth(number).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_map_zooms_by_buttons_keys_and_wheel_and_moves_with_the_mouse(page: Page, errors: list[str]) -> None:
    page.evaluate("document.querySelector('#question-1 .map').scrollIntoView({ behavior: 'instant' })")
    assert find_view_box(page) == [0, 0, 640, 480]
    page.locator(".zoom-in").first.click()
    assert find_view_box(page) == [120, 90, 400, 300]
    page.locator("#question-1 .plane").focus()
    press(page, "Escape", "+")
    assert find_view_box(page) == pytest.approx([195, 146.25, 250, 187.5])
    press(page, "0")
    assert find_view_box(page) == [0, 0, 640, 480] and page.locator("#question-1 .reset").is_disabled()
    box = page.locator("#question-1 .plane svg").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 4, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -500)
    page.keyboard.up("Control")
    x0, y0, width, height = find_view_box(page)
    assert width == pytest.approx(640 / 1.2**10)
    assert (x0 + width / 4, y0 + height / 2) == pytest.approx((160, 240), abs=1)  # what is under the mouse stays there
    page.mouse.down()
    page.mouse.move(x + 10, y + 20)
    page.mouse.up()
    moved_x0, moved_y0, *_ = find_view_box(page)
    assert moved_x0 < x0 and moved_y0 < y0 and page.locator(".drawer").is_hidden()
    page.mouse.wheel(0, -500)  # scrolls the page
    assert find_view_box(page)[2] == width
    assert errors == []


def test_names_on_the_map_cover_no_other(page: Page) -> None:
    boxes = [
        [box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]]
        for box in (name.bounding_box() for name in page.locator("#question-1 .name.placed").all())
        if box is not None
    ]
    assert texts_of(page, "#question-1 .name.placed") and len(boxes) >= 2
    for first, second in combinations(boxes, 2):
        is_beside = first[0] >= second[2] or second[0] >= first[2]
        assert is_beside or first[1] >= second[3] - 3 or second[1] >= first[3] - 3


def test_a_line_around_dots_shows_what_they_have_in_common(page: Page, errors: list[str]) -> None:
    page.locator("#question-1 .area").click()
    box = page.locator("#question-1 .plane svg").bounding_box()
    assert box is not None
    corners = [(2, 2), (box["width"] - 2, 2), (box["width"] - 2, box["height"] - 2), (2, box["height"] - 2)]
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(box["x"] + x, box["y"] + y, steps=4)
    page.mouse.up()
    assert texts_of(page, ".drawer h3") == ["12 texts"]
    assert "1 word0, more0 50% (of all texts 50%)" in texts_of(page, ".drawer dd")[0].replace("\n", " ")
    assert page.locator("#question-1 .area").get_attribute("aria-pressed") == "false"
    page.click(".open-area")
    assert texts_of(page, ".match-count") == ["12 of 12 texts — an area on the map of What is it?"]
    page.click(".back")
    x, y = find_dot(page, 3)
    page.mouse.click(x, y)
    assert texts_of(page, ".drawer h3")[0].startswith("Row ")
    page.click(".close")
    assert page.locator(".drawer").is_hidden() and errors == []


def test_a_map_is_coloured_by_another_question_or_column(page: Page, errors: list[str]) -> None:
    select = page.locator("#question-1 .colour-by")
    assert texts_of(page, "#question-1 .colour-by option") == ["What is it?", "Is it <b>good</b>?", "stars", "sent"]
    select.select_option("2")
    assert texts_of(page, "#question-1 .legend:visible li")[0].split("\n")[-2:] == ["1", "33%"]
    classes = page.evaluate("[...document.querySelectorAll('#question-1 .dots > *')].map(dot => dot.getAttribute('class'))")
    assert sorted(classes) == sorted(["c0"] * 4 + ["c1"] * 3 + ["c2"] * 2 + ["c3"] * 2 + ["c4"])
    page.locator("#question-1 .legend:visible button").first.click()
    lit = page.evaluate("[...document.querySelectorAll('#question-1 .dots > .lit')].map(dot => dot.getAttribute('class'))")
    assert lit == ["c0 lit"] * 4
    select.select_option("0")
    assert len(texts_of(page, "#question-1 .legend:visible li")) == 3 and page.locator("#question-1 .lit").count() == 0
    assert errors == []


def test_the_picture_of_a_map_is_saved(page: Page, errors: list[str], tmp_path: Path) -> None:
    with page.expect_download() as download:
        page.locator("#question-1 .picture").click()
    download.value.save_as(tmp_path / "map.png")
    content = (tmp_path / "map.png").read_bytes()
    assert download.value.suggested_filename == "map.png" and content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
    box = page.locator("#question-1 .plane svg").bounding_box()
    assert box is not None and abs(width - 2 * (box["width"] + 280)) <= 2 and height > 2 * box["height"]
    assert errors == []


def test_a_period_of_a_chart_opens_its_texts(page: Page) -> None:
    page.click("#tab-over-time")
    chart = page.evaluate("(b => [b.x, b.y, b.width, b.height])(document.querySelector('.chart').getBoundingClientRect())")
    row = page.evaluate("Number(document.querySelector('.chart').dataset.row)")
    page.mouse.move(chart[0] + chart[2] / 6, chart[1] + 30)
    texts = [str(i) for i in range(4) if TOPIC[i] == row]
    assert texts_of(page, ".foot .readout")[0] == f"2024-03-01: {len(texts)} of 4 texts, {25 * len(texts)}%"
    page.mouse.click(chart[0] + chart[2] / 6, chart[1] + 30)
    assert listed(page) == texts and shown_tab(page) == ["texts"]


def test_a_square_of_the_density_opens_its_texts(browse: Callable[..., Page], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MAX_DOTS", 10)
    monkeypatch.setattr(page_data, "MAX_ROWS", 30)
    page = browse([grouping([0] * 30 + [1] * 10, embeddings=np.repeat(np.eye(4, 8), 10, axis=0).astype(np.float32))])
    page.evaluate("document.querySelector('.plane').focus()")
    press(page, "Escape", "ArrowRight")
    assert "10 texts here, such as" in texts_of(page, ".tip")[0]
    press(page, "Enter")
    assert texts_of(page, ".drawer h3") == ["10 texts"] and "This page holds" in texts_of(page, ".drawer-note")[0]
    page.click(".open-area")
    assert 0 < len(listed(page)) < 10 and "one place on the map of What is it?" in texts_of(page, ".match-count")[0]
    assert "random sample of 30 of the 40 texts" in texts_of(page, "#texts .note")[0]


def test_fifty_rows_are_listed_at_a_time(browse: Callable[..., Page]) -> None:
    page = browse([grouping([0] * 120)])
    page.click("#tab-texts")
    assert len(listed(page)) == 50 and texts_of(page, ".next") == ["Show 50 more"]
    page.click(".next")
    assert len(listed(page)) == 100 and texts_of(page, ".next") == ["Show 20 more"]
    page.click(".next")
    assert len(listed(page)) == 120
    assert page.evaluate("document.querySelector('.next').hidden")


def test_print_shows_every_part_and_no_controls(page: Page) -> None:
    page.emulate_media(media="print")
    panels = "[...document.querySelectorAll('.panel')].filter(one => getComputedStyle(one).display !== 'none').map(one => one.id)"
    assert page.evaluate(panels) == ["question-1", "question-2", "cross-tables", "over-time"]
    controls = "[...document.querySelectorAll('.search, .tab, .cell-content, .open')].filter(one => one.offsetParent).length"
    assert page.evaluate(controls) == 0


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_no_part_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for tab in range(5):
        page.locator(".tab").nth(tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark_paper_differ_and_text_stands_out_on_both(page: Page) -> None:
    page.click("#tab-cross-tables")
    papers = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate(CONTRAST) >= 4.5
    assert papers == ["rgb(246, 246, 243)", "rgb(18, 20, 25)"]


CONTRAST = """(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = rgb => rgb.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], .05);
  const style = getComputedStyle(document.documentElement), card = getComputedStyle(document.querySelector('.card'));
  const cell = document.querySelector('.heatmap b'), ink = light(parse(getComputedStyle(cell).color).slice(0, 3));
  const paper = parse(card.backgroundColor).slice(0, 3);
  return Math.min(...['more', 'less'].map(kind => {
    const alpha = Number(style.getPropertyValue('--most'));
    const hue = style.getPropertyValue('--' + kind).trim().split(' ').map(Number);
    const seen = light(hue.map((value, i) => alpha * value + (1 - alpha) * paper[i]));
    return (Math.max(ink, seen)) / (Math.min(ink, seen));
  }));
})()"""
"""Script that measures the contrast of a number in the most strongly coloured cell."""


@pytest.mark.parametrize("size", [(1400, 900), (400, 800)])
def test_the_first_screen_holds_the_whole_map_and_no_cut_tab(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.reload()
    box = page.locator("#question-1 .plane svg").bounding_box()
    assert box is not None and box["y"] + box["height"] <= size[1]
    assert page.evaluate("[...document.querySelectorAll('.tab span')].every(tab => tab.scrollWidth <= tab.clientWidth + 1)")
    card = page.locator("#question-1 article h3").first.bounding_box()
    assert card is not None and (size[0] < 500 or card["y"] + card["height"] < size[1])
    page.click("#tab-cross-tables")
    assert len(set(page.evaluate("[...document.querySelectorAll('.pair')].map(one => one.offsetWidth)"))) == 1


def find_hits(page: Page, question: int = 1) -> list[str]:
    """List the texts whose dots are marked on a map."""
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    marked = page.evaluate(
        f"[...document.querySelector('#question-{question} .dots').children].flatMap((dot, i) => dot.matches('.hit') ? [i] : [])"
    )
    return [text for text, mark in zip(data["texts"], data["views"][question - 1]["markOf"], strict=True) if mark in marked]


def test_search_marks_the_dots_on_each_map_and_lists_their_texts(page: Page, errors: list[str]) -> None:
    page.fill(".search", "text 1")
    assert set(find_hits(page)) == {
        "text 1",
        "text 10",
        "text 11",
        *(f"text {i}" for i in range(12) if TOPIC[i] == 1 or MOOD[i] == 1),
    }
    page.fill(".search", "text 11")
    assert find_hits(page) == ["text 11"] and texts_of(page, ".found:visible") == ["1 of 12 texts match: list them"]
    page.click("#tab-question-2")
    assert find_hits(page, 2) == ["text 11"]
    page.locator("#question-2 .found").click()
    assert shown_tab(page) == ["texts"] and listed(page) == ["11"] and page.locator(".search").input_value() == "text 11"
    page.click(".back")
    assert shown_tab(page) == ["question-2"] and focused(page).startswith("search")
    press(page, "Escape")
    assert find_hits(page, 2) == [] and page.locator(".found:visible").count() == 0 and errors == []


def test_the_address_holds_the_selection_and_the_back_button_returns(page: Page, errors: list[str]) -> None:
    def get_address() -> str:
        return str(page.evaluate("location.hash.slice(1)"))

    start = page.url
    page.locator("#question-1 .legend button").nth(1).click()
    assert get_address() == "question-1&group=2"
    page.click("#tab-question-2")
    page.locator("#question-2 .colour-by").select_option("2")
    page.locator("#question-2 .legend:visible button").first.click()
    assert get_address() == "question-2&colours=3&group=1"
    page.click("#tab-cross-tables")
    page.click(".heatmap button[data-row='1'][data-column='1']")
    assert get_address() == "texts&filter-1=2&filter-2=2"
    page.fill(".search", "text 7")
    page.fill(".search", "text 6")
    assert get_address() == "texts&filter-1=2&filter-2=2&search=text+6" and listed(page) == ["6"]
    page.go_back()
    assert listed(page) == ["6", "7"] and page.locator(".search").input_value() == ""
    page.go_back()
    assert shown_tab(page) == ["cross-tables"]
    page.go_back()
    assert shown_tab(page) == ["question-2"] and page.locator("#question-2 .lit").count() == 4
    for _ in range(2):
        page.go_back()
    assert shown_tab(page) == ["question-2"] and page.locator("#question-2 .legend.other").count() == 0
    page.go_back()
    assert shown_tab(page) == ["question-1"] and page.locator("#question-1 .lit").count() == 3
    page.go_back()
    assert page.url == start and page.locator("#question-1 .lit").count() == 0
    page.go_forward()
    assert page.locator("#question-1 .lit").count() == 3 and errors == []


def test_a_link_restores_rows_on_the_map_and_in_the_list(page: Page, errors: list[str]) -> None:
    start = page.url
    x, y = find_dot(page, 3)
    page.mouse.click(x, y)
    heading, link = texts_of(page, ".drawer h3"), page.url
    assert link.endswith("#question-1&rows=" + heading[0].removeprefix("Row "))
    page.goto(start + "#question-2&rows=3-5,1,99")
    assert texts_of(page, ".drawer h3") == ["4 texts"] and find_hits(page, 2) == ["text 0", "text 2", "text 3", "text 4"]
    page.click(".open-area")
    assert listed(page) == ["0", "2", "3", "4"] and page.url.endswith("#texts&map=2&rows=1,3-5")
    page.goto("about:blank")
    page.goto(start + "#texts&map=2&rows=1,3-5")
    assert listed(page) == ["0", "2", "3", "4"]
    assert texts_of(page, ".match-count") == ["4 of 12 texts — an area on the map of Is it <b>good</b>?"]
    page.goto(link)
    assert texts_of(page, ".drawer h3") == heading and len(find_hits(page)) == 1
    press(page, "Escape")
    assert find_hits(page) == [] and page.url.endswith("#question-1") and errors == []


@pytest.mark.parametrize(
    "part", ["nothing", "question-1&group=99", "question-1&rows=0,x,9-1", "texts&filter-1=7&filter-9=1", "%E0%A4&%"]
)
def test_an_address_that_fits_nothing_shows_the_page_as_it_is(page: Page, errors: list[str], part: str) -> None:
    page.goto("about:blank")
    page.go_back()
    page.goto(page.url + "#" + part)
    assert shown_tab(page) == [part.partition("&")[0] if part.startswith("texts") else "question-1"]
    assert page.locator(".drawer").is_hidden() and page.locator(".lit, .hit").count() == 0
    assert texts_of(page, ".match-count") == ["12 of 12 texts"] if part.startswith("texts") else True
    assert errors == []


def test_answers_are_named_on_a_zoomed_map_and_more_the_larger_it_is(browse: Callable[..., Page], errors: list[str]) -> None:
    answers = [f"answer {i // 2}" for i in range(60)]
    page = browse([grouping([i // 20 for i in range(60)], answers=answers)])
    counts = [page.locator(".answers text").count()]
    page.evaluate("document.querySelector('.plane').focus()")
    press(page, "Escape", "ArrowRight")
    for _ in range(3):
        press(page, "+")
        names = page.locator(".answers .placed").all_text_contents()
        assert set(names) <= set(answers) and len(set(names)) == len(names)
        counts.append(page.locator(".answers text").count())
    assert counts[0] == 0 < counts[1] < counts[2] and errors == []
    page.locator(".reset").click()
    assert page.locator(".answers text").count() == 0
