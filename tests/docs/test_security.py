"""The page of promises names a test for each, and each of these tests exists."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = PAGE.partition("## Fault injection")[0]
FILE_AND_TESTS = re.compile(r"`(tests/[\w/]+\.py)`((?:[\s,]+(?:and )?`test_\w+`)+)")


def test_every_promise_names_tests():
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| ---"))]
    assert len(rows) > 30
    assert [row for row in rows if not FILE_AND_TESTS.search(row)] == []


def test_every_test_that_the_page_names_exists():
    tests = [(file, name) for file, names in FILE_AND_TESTS.findall(PAGE) for name in re.findall(r"test_\w+", names)]
    assert len(tests) == PAGE.count("`test_")
    missing = [name for file, name in tests if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")]
    assert missing == []


def test_the_numbers_of_hostile_requests_are_the_committed_ones():
    cases = json.loads((ROOT / "scripts" / "results" / "hostile_requests.json").read_text())["cases"]
    memory = sorted(case["peak_memory_over_idle"] for case in cases.values())
    assert f"sends {len(cases)} hostile requests" in PAGE
    assert f"takes {max(case['slowest_health_seconds'] for case in cases.values()):.2f} s" in PAGE
    assert f"is {memory[-1]:.2f} times" in PAGE
    assert f"{memory[-2]:.2f} without it" in PAGE
