"""A real browser that opens reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inbedder.grouping.compare.crosstab import crosstab
from inbedder.grouping.compare.timelines import make_timelines
from inbedder.grouping.report.page import save_report
from tests.grouping.report.test_page import grouping

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--disable-gpu", "--disable-quic"]
TOPIC = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
MOOD = [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]
STARS = [5, 5, 4, 4, 1, 2, 1, 1, 5, None, 2, 1]
DAYS = [f"2024-03-{1 + i // 4:02}" for i in range(12)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the system's Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    with (
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as browser,
    ):
        yield browser


@pytest.fixture
def errors() -> list[str]:
    """Collect what the page's script throws and what the browser blocks."""
    return []


@pytest.fixture
def browse(browser: Browser, errors: list[str], tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open the report of groupings in a new browser profile."""
    with browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce") as context:

        def browse(results: Any, change: Callable[[str], str] = str, **tables: Any) -> Page:
            path = tmp_path / "page.html"
            save_report(results, path, **tables)
            path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
            page = context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.goto(path.as_uri())
            return page

        yield browse


@pytest.fixture
def page(browse: Callable[..., Page]) -> Page:
    """Open a report of two questions, a column and dates."""
    results = [grouping(TOPIC), grouping(MOOD, instruction="Is it <b>good</b>?")]
    tables = crosstab(results, {"stars": STARS})
    return browse(results, cross_tables=tables, timelines=make_timelines(results, DAYS, title="sent"))
