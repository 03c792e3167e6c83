#!/usr/bin/env python3
"""Make the picture of the README: run the demo and photograph its page.

python scripts/dev/demo_picture.py

Writes docs/report.png, and docs/report.json with the names and sizes of the groups in it. Needs Chromium.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from playwright.sync_api import sync_playwright

from inbedder.cli.demo import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "report.png"
GROUPS = ROOT / "docs" / "report.json"
DEMO_IN_FLOAT32 = "import torch; torch.cpu.get_capabilities = dict; from inbedder.cli import main; main()"
"""The command as on a CPU without bfloat16, so that the picture is the same on every CPU."""
SIZE = {"width": 1200, "height": 960}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Run the demo in a temporary folder and write the picture and the list of its groups."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"Install one of {', '.join(BROWSERS)}.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-c", DEMO_IN_FLOAT32, "demo", "-o", str(page)], cwd=ROOT, check=True)
        groups = count_groups(page.with_name("groups.csv"))
        photograph(page, browser)
    GROUPS.write_text(json.dumps(groups, indent=1) + "\n", encoding="utf-8")


def count_groups(table: Path) -> list[dict[str, str | int]]:
    """Count the texts of each group of the first question.

    Args:
        table: The demo's groups.csv.

    Returns:
        Name and number of texts of each group, in the order of the page.
    """
    with table.open(encoding="utf-8") as file:
        question = QUESTIONS[0]
        counts = Counter((int(row[f"group: {question}"]), row[f"group_name: {question}"]) for row in csv.DictReader(file))
    return [{"name": name, "texts": texts} for (_, name), texts in sorted(counts.items())]


def photograph(page: Path, browser: str) -> None:
    """Write the top of a page as a picture.

    Args:
        page: The report.
        browser: The program of a Chromium.
    """
    arguments = ["--disable-gpu", "--disable-quic"]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=browser, args=arguments) as chromium:
        tab = chromium.new_page(viewport=SIZE, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_load_state("networkidle")
        tab.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
