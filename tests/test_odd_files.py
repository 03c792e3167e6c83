"""Each odd file of tests/data/odd gives the number of texts or the error of expected.json, read as a table and as a stream."""

import json
from pathlib import Path

import pytest

from inbedder.errors import InputError
from inbedder.io.tables import open_texts, read_table

ODD = Path(__file__).parent / "data" / "odd"
EXPECTED = json.loads((ODD / "expected.json").read_text(encoding="utf-8"))


def read_both_ways(name, *, skip_bad):
    """Read a file as a table and as a stream; None if the file is refused."""
    results = []
    try:
        results.append(read_table(str(ODD / name), skip_bad=skip_bad).texts)
    except InputError:
        results.append(None)
    try:
        with open_texts(str(ODD / name), skip_bad=skip_bad) as stream:
            results.append([text for _, text in stream])
    except InputError:
        results.append(None)
    return results


def test_every_odd_file_has_an_expected_result():
    assert {path.name for path in ODD.iterdir() if path.suffix not in (".py", ".json") or "_" in path.name} <= set(EXPECTED)
    assert set(EXPECTED) <= {path.name for path in ODD.iterdir()}
    assert len(EXPECTED) >= 60
    assert sum(path.stat().st_size for path in ODD.iterdir() if path.is_file()) < 300_000


@pytest.mark.parametrize("skip_bad", [False, True], ids=["whole", "bad rows left out"])
@pytest.mark.parametrize("name", EXPECTED)
def test_an_odd_file_gives_its_expected_result(name, skip_bad):
    texts, streamed = read_both_ways(name, skip_bad=skip_bad)
    assert texts == streamed
    expected = EXPECTED[name]["skip_bad" if skip_bad else "texts"]
    assert ("refused" if texts is None else len(texts)) == expected
