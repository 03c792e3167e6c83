"""The page's script, run by a real browser."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from inbedder.grouping.report.page import save_report
from tests.grouping.test_page import Page, grouping

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'too' {{ 7 * 7 }} <!-- ]]>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")


def browse(page: Path, profile: Path) -> str:
    """The page's elements after a browser ran its script."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
        "--virtual-time-budget=3000", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True).stdout


@needs_chromium
def test_the_script_runs_in_a_browser_and_no_other_does(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    texts = [f"{NASTY} {i}" for i in range(12)]
    save_report([grouping([0] * 8 + [1] * 4, texts=texts)], page)
    alien = "<script>document.documentElement.dataset.alien = 1</script></body>"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", alien), encoding="utf-8")
    root = Page(browse(page, tmp_path / "profile")).named("html")
    assert root == [{"lang": "en", "data-dots": "12"}]


@needs_chromium
def test_arrow_keys_show_a_dot_with_its_answer_and_its_other_groups(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    save_report([grouping([0] * 8 + [1]), grouping([0] + [1] * 8, instruction="And <b>where</b>?")], page)
    keys = """<script>
        const plane = document.querySelector('.plane');
        document.querySelectorAll('.legend button')[1].click();
        plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
        document.title = plane.querySelector('.tip').textContent;
        plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
        </script></body>"""
    html = re.sub("<meta http-equiv[^>]*>", "", page.read_text(encoding="utf-8")).replace("</body>", keys)
    page.write_text(html, encoding="utf-8")
    seen = browse(page, tmp_path / "profile")
    assert "<title>2 word1, more1text 8“answer 1”And &lt;b&gt;where&lt;/b&gt;? 2 word1, more1 2</title>" in seen
    assert [attributes.get("aria-pressed") for attributes in Page(seen).named("button")] == ["false", "true", "false", "false"]
    assert all("hidden" in attributes for attributes in Page(seen).named("div") if attributes.get("class") == "tip")
