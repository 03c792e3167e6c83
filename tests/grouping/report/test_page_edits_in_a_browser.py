"""Changes of groups on the page, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.compare.timelines import make_timelines
from inbedder.grouping.describe.explain import measure_agreement
from inbedder.grouping.report import maps, page_data
from tests.grouping.report.conftest import DAYS, MOOD, STARS, TOPIC
from tests.grouping.report.test_page import grouping
from tests.grouping.report.test_page_in_a_browser import press, texts_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = ["word0, more0", "word1, more1", "word2, more2"]
DOT_OF_ROW = "JSON.parse(document.getElementById('data').textContent).views[0].markOf[{}]"
"""Script that finds the dot of a row on the first map."""


def test_groups_are_renamed_and_merged_and_the_changes_saved(page: Page, errors: list[str], tmp_path: Path) -> None:
    first = page.locator("#question-1 article").first
    first.locator(".rename").click()
    page.keyboard.type("delays")
    press(page, "Enter")
    assert texts_of(page, "#question-1 .legend bdi")[0].strip() == "delays"
    first.locator(".merge").select_option(label="3 word2, more2")
    assert page.locator("#question-1 article:visible").count() == 2
    assert "1 group merged" in texts_of(page, "#question-1 .changes")[0]
    assert texts_of(page, "#question-1 article:visible .size") == ["3 texts · 25%", "9 texts · 75%"]
    page.click("#tab-texts")
    assert len({text.split("\n")[0] for text in texts_of(page, ".rows tbody td:nth-child(3)")}) == 2
    page.click("#tab-question-1")
    with page.expect_download() as download:
        page.click("#question-1 .save-changes")
    download.value.save_as(tmp_path / "changes.json")
    changes = json.loads((tmp_path / "changes.json").read_text())
    assert changes == {"question": "What is it?", "groups": NAMES, "move": [], "merge": [[1, 3]], "rename": {"3": "word2, more2"}}
    assert errors == []


def test_an_empty_or_used_name_is_not_taken(page: Page) -> None:
    for name in (" ", "word1, more1"):
        page.locator("#question-1 article .rename").first.click()
        page.keyboard.type(name)
        press(page, "Enter")
        assert texts_of(page, "#question-1 article h3")[0] == "word0, more0"
    assert page.locator("#question-1 .changes").is_hidden()


def test_the_headline_keeps_the_marks_of_loose_groups(browse: Callable[..., Page]) -> None:
    page = browse([grouping([0] * 10 + [1] * 8 + [2] * 6, stability=[0.1, 0.9, 0.9])])
    assert "“word0, more0 ≈” 42%" in page.inner_text(".finding")
    page.locator(".merge").nth(1).select_option(label="3 word2, more2")
    assert page.inner_text(".finding") == "largest: “word2, more2” 58%, “word0, more0 ≈” 42%"


def test_merging_two_groups_changes_all_that_the_page_says_of_them(browse: Callable[..., Page], errors: list[str]) -> None:
    merged_topic = [0 if topic == 2 else topic for topic in TOPIC]
    results = [grouping(topic, answers=[f"answer {i % 2}" for i in range(12)]) for topic in (TOPIC, merged_topic)]
    mood = grouping(MOOD, instruction="Is it <b>good</b>?")
    open_page = {
        name: browse(
            [result, mood],
            cross_tables=crosstab([result, mood], {"stars": STARS}),
            timelines=make_timelines([result], DAYS, title="sent"),
        )
        for name, result in zip(("before", "after"), results, strict=True)
    }
    page, expected = open_page["before"], open_page["after"]
    page.locator("#question-1 .merge").nth(2).select_option(label="1 word0, more0")
    for selector in (".size", ".answers"):
        assert texts_of(page, f"#question-1 article:visible {selector}") == texts_of(expected, f"#question-1 article {selector}")
    assert page.locator("#question-1 article .bar i").first.evaluate("each => each.style.getPropertyValue('--w')") == "75.00"
    assert texts_of(page, "#question-1 article:first-child .quotes li") == ["example 0", "example 2"]
    assert texts_of(page, "#question-1 .group-count") == ["2 groups"]
    page.click("#tab-cross-tables")
    expected.click("#tab-cross-tables")
    for kind in ("count", "lift", "residual"):
        for each in (page, expected):
            each.locator("#cross-tables .cell-content").first.select_option(kind)
        cells = [[text for text in texts_of(each, ".pair td:visible")] for each in (page, expected)]
        assert cells[0] == cells[1]
    assert texts_of(page, ".verdict") == texts_of(expected, ".verdict")
    page.click("#tab-over-time")
    assert page.locator("#over-time .charts li:visible").count() == 2
    page.click("#tab-texts")
    assert texts_of(page, ".filters label:first-child option") == ["all", "1 word0, more0", "2 word1, more1"]
    assert errors == []


def click_dot(page: Page, row: int) -> None:
    """Click the dot of a row of the first map."""
    number = page.evaluate(DOT_OF_ROW.format(row))
    box = page.locator("#question-1 .dots > *").nth(number).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def select_whole_map(page: Page) -> None:
    """Draw a line around all dots of the first map."""
    page.locator("#question-1 .area").click()
    box = page.locator("#question-1 .plane svg").bounding_box()
    assert box is not None
    x0, y0, x1, y1 = box["x"] + 2, box["y"] + 2, box["x"] + box["width"] - 2, box["y"] + box["height"] - 2
    page.mouse.move(x0, y0)
    page.mouse.down()
    for x, y in [(x1, y0), (x1, y1), (x0, y1)]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


def save_changes(page: Page, button: str, folder: Path) -> Any:
    with page.expect_download() as download:
        page.click(button)
    download.value.save_as(folder / "changes.json")
    return json.loads((folder / "changes.json").read_text(encoding="utf-8"))


def test_moving_a_text_changes_all_that_the_page_says_of_its_groups(browse: Callable[..., Page], errors: list[str]) -> None:
    moved_topic = [0 if row == 9 else topic for row, topic in enumerate(TOPIC)]
    kinds = [f"kind {i % 4}" for i in range(12)]
    mood = grouping(MOOD, instruction="Is it <b>good</b>?")
    open_page = {}
    for name, topic in (("before", TOPIC), ("after", moved_topic)):
        agreement = measure_agreement(np.array(topic), kinds)
        answers = [f"answer {i % 2}" for i in range(12)]
        vectors = grouping(TOPIC).embeddings
        result = grouping(topic, answers=answers, label_agreements={"kind": agreement}, embeddings=vectors)
        columns = {"stars": STARS, "kind": kinds}
        tables, timelines = crosstab([result, mood], columns), make_timelines([result], DAYS, title="sent")
        open_page[name] = browse([result, mood], cross_tables=tables, timelines=timelines)
    page, expected = open_page["before"], open_page["after"]
    click_dot(page, 9)
    assert texts_of(page, ".drawer .move-to option") == ["…", "1 word0, more0", "2 word1, more1"]
    assert page.locator(".save-moves").is_hidden()
    page.locator(".move-to").select_option(label="1 word0, more0")
    assert texts_of(page, ".drawer-note") == ["1 text moved to “word0, more0”."]
    assert texts_of(page, ".drawer .group-label")[0] == "1 word0, more0"
    page.click(".close")
    for selector in (".size", ".answers", ".composition .counts"):
        lines = [texts_of(each, f"#question-1 article {selector}") for each in (page, expected)]
        assert [sorted(line.split("\n")) for line in lines[0]] == [sorted(line.split("\n")) for line in lines[1]]
    assert texts_of(page, "#question-1 .legend li") == texts_of(expected, "#question-1 .legend li")
    dots = [
        each.evaluate(
            "[...document.querySelectorAll('#question-1 .dots > *')].map(dot => dot.outerHTML.replaceAll('.0\"', '\"'))"
        )
        for each in (page, expected)
    ]
    assert dots[0] == dots[1]
    for each in (page, expected):
        each.click("#tab-cross-tables")
    for kind in ("count", "lift", "residual"):
        for each in (page, expected):
            each.locator("#cross-tables .cell-content").first.select_option(kind)
        cells = [each.locator("#cross-tables td").all_text_contents() for each in (page, expected)]
        assert cells[0] == cells[1]
    assert page.locator(".verdict").all_text_contents() == expected.locator(".verdict").all_text_contents()
    page.click("#tab-over-time")
    assert sum("not tested" in text for text in texts_of(page, "#over-time .trend")) == 2
    assert errors == []


def test_the_texts_of_an_area_are_moved_and_saved(page: Page, errors: list[str], tmp_path: Path) -> None:
    select_whole_map(page)
    assert texts_of(page, ".drawer .edit span") == ["Move these 12 texts to "]
    page.locator(".move-to").select_option(label="2 word1, more1")
    assert texts_of(page, "#question-1 article .size") == ["0 texts · 0%", "12 texts · 100%", "0 texts · 0%"]
    assert texts_of(page, "#question-1 .changes span") == [
        "9 texts moved. The trends of changed groups over time are not tested anew."
    ]
    moves = [{"text": f"text {row}", "to": 2} for row in range(12) if TOPIC[row] != 1]
    changes = {"question": "What is it?", "groups": NAMES, "move": moves, "merge": [], "rename": {}}
    assert save_changes(page, ".save-moves", tmp_path) == changes
    assert errors == []


def test_a_text_moved_back_or_merged_into_its_group_is_not_saved(page: Page, errors: list[str], tmp_path: Path) -> None:
    for row, group in ((9, "1 word0, more0"), (9, "3 word2, more2"), (10, "1 word0, more0"), (6, "3 word2, more2")):
        click_dot(page, row)
        page.locator(".move-to").select_option(label=group)
        page.click(".close")
    page.locator("#question-1 .merge").nth(2).select_option(label="1 word0, more0")
    assert texts_of(page, "#question-1 .changes span")[0].startswith("1 group merged, 1 text moved.")
    assert save_changes(page, "#question-1 .save-changes", tmp_path) == {
        "question": "What is it?",
        "groups": NAMES,
        "move": [{"text": "text 6", "to": 1}],
        "merge": [[1, 3]],
        "rename": {"1": "word0, more0"},
    }
    assert errors == []


def test_equal_texts_move_together_and_leave_the_quotes(browse: Callable[..., Page], tmp_path: Path) -> None:
    texts = ["same", "same", "another", "more", "third", "last", "far", "away"]
    page = browse([grouping([0] * 6 + [1, 1], texts=texts, examples=[["same", "another", "more", "third", "last"], ["far"]])])
    click_dot(page, 0)
    page.locator(".move-to").select_option(label="2 word1, more1")
    assert texts_of(page, ".drawer-note") == ["2 texts moved to “word1, more1”. Equal texts move together."]
    assert texts_of(page, "#question-1 article:first-child > .quotes li") == ["another", "more", "third"]
    assert texts_of(page, "#question-1 article:first-child summary") == ["1 more"]
    assert save_changes(page, ".save-moves", tmp_path)["move"] == [{"text": "same", "to": 2}] * 2
    page.click(".close")
    click_dot(page, 6)
    page.locator(".move-to").select_option(label="1 word0, more0")
    assert texts_of(page, "#question-1 article:nth-child(2) h4") == ["Most frequent answers"]


def test_a_dot_takes_the_shape_of_its_new_group(browse: Callable[..., Page]) -> None:
    page = browse([grouping([i // 2 for i in range(16)])])
    dot = f"document.querySelectorAll('#question-1 .dots > *')[{DOT_OF_ROW.format(0)}]"
    place = f"(box => [box.x + box.width / 2, box.y + box.height / 2])({dot}.getBoundingClientRect())"
    before = page.evaluate(place)
    assert page.evaluate(f"{dot}.localName") == "circle"
    click_dot(page, 0)
    page.locator(".move-to").select_option("7")
    assert page.evaluate(f"{dot}.localName") == "path" and page.evaluate(f"{dot}.getAttribute('class')") == "c7"
    assert page.evaluate(place) == pytest.approx(before, abs=0.5)


def test_a_square_is_coloured_by_most_of_its_texts(browse: Callable[..., Page], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MAX_DOTS", 10)
    vectors = np.repeat(np.eye(4, 8), 10, axis=0).astype(np.float32)
    result = grouping([0] * 30 + [1] * 10, embeddings=vectors)
    for sampled_count, colour in ((40, "c1"), (30, "c0")):
        monkeypatch.setattr(page_data, "MAX_ROWS", sampled_count)
        page = browse([result])
        click_dot(page, 0)
        page.locator(".move-to").select_option(label="2 word1, more1")
        moved_count = int(texts_of(page, ".drawer-note")[0].split()[0])
        assert moved_count == 10 if sampled_count == 40 else 0 < moved_count < 10
        assert page.evaluate(f"document.querySelectorAll('.dots > *')[{DOT_OF_ROW.format(0)}].getAttribute('class')") == colour
        assert texts_of(page, "#question-1 .size")[1].startswith(f"{10 + moved_count} texts")


def test_texts_move_out_of_none_of_the_groups_but_not_into_it(browse: Callable[..., Page]) -> None:
    page = browse([grouping([0, 0, 0, 1, 1, 2], left_out=2)])
    click_dot(page, 5)
    assert texts_of(page, ".move-to option") == ["…", "1 word0, more0", "2 word1, more1"]
    page.locator(".move-to").select_option("1")
    assert [text.split()[0] for text in texts_of(page, "#question-1 .size")] == ["3", "3", "0"]
    one_group = browse([grouping([0, 0])])
    click_dot(one_group, 0)
    assert one_group.locator(".drawer .edit").is_hidden()
