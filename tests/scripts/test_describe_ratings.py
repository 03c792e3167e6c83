import importlib.util
import json
import sys
from pathlib import Path

import pytest

from inbedder.conditional.rated_rows import read_rated_pairs
from inbedder.errors import InputError

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("describe_ratings", ROOT / "scripts" / "data" / "describe_ratings.py")
describe_ratings = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(describe_ratings)
ROWS = """pair,sentence1,sentence2,condition,label
1,A red bike,A red car,The colour.,5
1,A red bike,A red car,The kind of vehicle.,2
2,Two dogs sleep,Two cats run,The number.,5
2,Two dogs sleep,Two cats run,The verb.,1
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path / "rows.csv"


def write_ratings(path, *labels):
    conditions = [(1, "The colour."), (1, "The kind of vehicle."), (2, "The number.")]
    rows = [f"{pair},{condition},{label}" for (pair, condition), label in zip(conditions, labels, strict=True)]
    path.write_text("\n".join(["pair,condition,label", *rows]))
    return path


def test_ratings_and_lengths_are_counted(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["describe_ratings.py", str(table), "-o", str(tmp_path / "r.json")])
    describe_ratings.main()
    described = json.loads((tmp_path / "r.json").read_text())["tables"]["rows.csv"]
    assert described["ratings"] == {"1": 1, "2": 1, "3": 0, "4": 0, "5": 2}
    assert (described["rows"], described["words_per_sentence"], described["words_per_condition"]) == (4, 3.0, 2.5)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_agreement_is_of_the_rows_that_all_raters_rated(table, tmp_path):
    rows = read_rated_pairs(table)
    second, third = write_ratings(tmp_path / "a.csv", 5, 2, 4), write_ratings(tmp_path / "b.csv", 5, 2, 5)
    agreement = describe_ratings.measure_agreement(rows, [second, third])
    assert (agreement["raters"], agreement["rows"], agreement["percent_equal"]) == (3, 3, 66.7)
    # agreement of pairs of raters: (1 + 1 + 1/3) / 3; by chance: (5/9)^2 + (3/9)^2 + (1/9)^2
    assert agreement["fleiss_kappa"] == pytest.approx((7 / 9 - 35 / 81) / (1 - 35 / 81), abs=5e-4)
    assert describe_ratings.measure_agreement(rows, [third])["fleiss_kappa"] == 1
    (tmp_path / "c.csv").write_text("pair,condition,label\n9,The colour.,5\n")
    with pytest.raises(InputError, match="No row was rated by all raters"):
        describe_ratings.measure_agreement(rows, [tmp_path / "c.csv"])


def test_the_committed_results_are_those_of_the_written_rows():
    committed = json.loads((ROOT / "finetune" / "results" / "ratings.json").read_text())
    folder = ROOT / "finetune" / "written"
    rows = read_rated_pairs(folder / "csts-captions.csv")
    assert committed["tables"]["csts-captions.csv"] == describe_ratings.describe_rows(rows)
    assert committed["agreement"] == describe_ratings.measure_agreement(rows, [folder / "csts-captions-second.csv"])
