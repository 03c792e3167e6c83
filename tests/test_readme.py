"""What the README and the model card show is what the committed results hold."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

import inbedder

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("update_tables", ROOT / "scripts" / "update_tables.py")
update_tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(update_tables)


@pytest.mark.parametrize("path", update_tables.PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tables_are_made_from_the_committed_results(path):
    page = path.read_text(encoding="utf-8")
    assert update_tables.with_tables(page) == page


@pytest.mark.parametrize(("corpus", "floor"), [("amazon_multidomain", 45), ("airline_tweets", 62)])
def test_the_committed_results_reach_the_floor(corpus, floor):
    cells = update_tables.load_cells(update_tables.RESULTS / "mini.json")
    chosen = [c for c in cells if c.model == "mini" and c.task.startswith(corpus) and c.task.endswith("triplets")]
    assert chosen
    assert all(cell.scores["harmonic_mean"] >= floor for cell in chosen)


def test_the_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("scripts/demo", "scripts/test", "docs/report.png", "finetune/recipes/mini.yaml", "prompts/instructions.yaml"):
        assert name in text
        assert (ROOT / name).exists()


def test_the_citation_names_the_package_as_it_is_and_the_five_papers():
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (content["title"], content["version"], content["license"]) == ("inbedder", inbedder.__version__, "Apache-2.0")
    titles = [reference["title"] for reference in content["references"]]
    assert len(titles) == 5 and all(reference["authors"] for reference in content["references"])
    for word in ("Answer is All You Need", "One Embedder", "C-STS", "Data-CUBE", "INSTRUCTOR:"):
        assert sum(title.startswith(word) for title in titles) == 1
    assert titles[0] in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_means_over_wordings_raise_the_judgement_cost_topics_a_point_at_most_and_no_wording_fails():
    header, *rows = update_tables.wordings_table()
    scores = {name: dict(zip(header[1:], map(float, row), strict=True)) for name, *row in rows}
    assert len(scores) == 4
    for name, found in scores.items():
        judgement = name.endswith("polarity")
        assert min(found["mean of 3: worst"], found["mean of 5: worst"]) >= found["one wording: worst"] + (
            2.0 if judgement else -1.0
        )
        assert min(found["mean of 3: mean"], found["mean of 5: mean"]) >= found["one wording: mean"] + (
            0.3 if judgement else -1.0
        )
        assert found["one wording: worst"] > (0.85 if judgement else 0.9) * found["one wording: mean"]


def test_the_default_namer_was_judged_best():
    (_, *rows) = update_tables.names_table()
    assert rows[0][0] == "words"


def test_the_readme_says_how_fast_the_page_of_a_large_corpus_was():
    cells = json.loads((update_tables.BENCHMARKS / "page.json").read_text(encoding="utf-8"))["cells"]
    large = next(cell for cell in cells if cell["texts"] == 50_000)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(
        r"50,000 texts opens in ([\d.]+) seconds of headless Chromium and is never frozen for longer than ([\d.]+)", text
    )
    frozen = max(large["longest_task_opening"], large["longest_task_in_use"])
    assert [float(number) for number in said.groups()] == [
        round(large["milliseconds_to_open"] / 1000, 1),
        round(frozen / 1000, 1),
    ]
