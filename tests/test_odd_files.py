"""Each odd file of tests/data/odd gives what expected.json says, read whole and as a stream: so many texts, or a refusal."""

import json
from pathlib import Path

import pytest

from inbedder.errors import InputError
from inbedder.io.tables import open_texts, read_table

ODD = Path(__file__).parent / "data" / "odd"
EXPECTED = json.loads((ODD / "expected.json").read_text(encoding="utf-8"))


def texts_of(name, *, skip_bad):
    """Texts of both ways of reading; None where the file is refused."""
    found = []
    try:
        found.append(read_table(str(ODD / name), skip_bad=skip_bad).texts)
    except InputError:
        found.append(None)
    try:
        with open_texts(str(ODD / name), skip_bad=skip_bad) as stream:
            found.append([text for _, text in stream])
    except InputError:
        found.append(None)
    return found


def test_every_odd_file_is_expected_to_do_something():
    assert {path.name for path in ODD.iterdir() if path.suffix not in (".py", ".json") or "_" in path.name} <= set(EXPECTED)
    assert set(EXPECTED) <= {path.name for path in ODD.iterdir()}
    assert len(EXPECTED) >= 60
    assert sum(path.stat().st_size for path in ODD.iterdir() if path.is_file()) < 300_000


@pytest.mark.parametrize("skip_bad", [False, True], ids=["whole", "bad rows left out"])
@pytest.mark.parametrize("name", EXPECTED)
def test_an_odd_file_gives_what_is_expected_of_it(name, skip_bad):
    whole, streamed = texts_of(name, skip_bad=skip_bad)
    assert whole == streamed
    expected = EXPECTED[name]["skip_bad" if skip_bad else "texts"]
    assert ("refused" if whole is None else len(whole)) == expected
