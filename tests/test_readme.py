"""What the pages show is what the committed results hold."""

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from statistics import harmonic_mean, mean

import pytest
import yaml

import inbedder

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("update_tables", ROOT / "scripts" / "dev" / "update_tables.py")
update_tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(update_tables)
TABLES = update_tables.read_descriptions()
FOLDERS = ("docs", "evaluation", "finetune", "inbedder/models")


@pytest.mark.parametrize("path", update_tables.list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_rendered_from_the_committed_results(path):
    page = path.read_text(encoding="utf-8")
    assert update_tables.with_tables(page) == page


def test_every_table_is_on_its_page_and_on_no_other():
    marked = Counter()
    for page in (ROOT / "README.md", *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md"))):
        names = [match[2] for match in update_tables.MARKED_TABLE.finditer(page.read_text(encoding="utf-8"))]
        marked.update((name, str(page.relative_to(ROOT))) for name in names)
    assert marked == Counter((name, description["page"]) for name, description in TABLES.items())


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_no_empty_row(name):
    (head, *rows), _caption = update_tables.render_rows(TABLES[name]), TABLES[name]["caption"]
    assert rows and all(len(row) == len(head) and any(row[1:]) for row in rows)


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("readme-")])
def test_a_table_of_the_readme_has_six_rows_and_five_columns_at_most(name):
    rows = update_tables.render_rows(TABLES[name])
    assert len(rows) <= 7 and len(rows[0]) <= 5


def test_a_column_shows_the_best_of_several_paths():
    description = {"file": "evaluation/results/search.json"}
    column = {"head": "best", "best_of": [["results", "*", "scores", name] for name in ("base", "rerank 200, weight auto")]}
    cells = [update_tables.render_cell({"head": "one", "path": path}, {}, description, {}) for path in column["best_of"]]
    assert update_tables.render_cell(column, {}, description, {}) == max(cells, key=float) != min(cells, key=float)


def test_a_path_chooses_records_and_takes_means():
    content = {"rows": [{"set": "a", "by": 1, "score": 2.0}, {"set": "a", "by": 2, "score": 4.0}]}
    assert update_tables.look_up(content, ["rows", "set=a&by=2", "score"]) == 4.0
    assert update_tables.look_up(content, ["rows", "*", "score"]) == 3.0
    assert update_tables.look_up(content, ["rows", "set=b", "score"]) is None


def test_a_table_says_which_models_are_better_than_the_baseline():
    column = {"head": "better", "better": [["mini", "small"], ["base"]]}
    cells = {"base": "3.0", "mini": "2.9 ± 0.2", "small": "3.1 [2.0, 4.0]"}
    assert update_tables.render_cell(column, {}, {}, cells) == "small"
    assert update_tables.render_cell(column, {}, {}, cells | {"small": ""}) == "none"


@pytest.mark.parametrize(
    ("file", "corpus", "criteria", "floor"),
    [("test", "amazon_multidomain", ("domain", "polarity"), 45), ("dev", "airline_tweets", ("negative_reason", "airline"), 62)],
)
def test_committed_results_reach_the_floor(file, corpus, criteria, floor):
    task, file = f"{corpus} (1000 rows) triplets, 3 wordings", f"evaluation/results/{file}.json"
    scores = [update_tables.load_wording_scores(file, criterion)["mini"][task]["mean"] for criterion in criteria]
    assert harmonic_mean(scores) >= floor


def test_readme_names_files_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("scripts/demo", "docs/report.png"):
        assert name in text
        assert (ROOT / name).exists()


@pytest.mark.parametrize("path", ["pyproject.toml", "finetune/pyproject.toml", "evaluation/pyproject.toml"])
def test_badges_citation_and_packages_agree(path):
    tomllib = pytest.importorskip("tomllib")
    package = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)\n", "\n".join(package["classifiers"]) + "\n")
    name = package["name"].replace("-", "_")
    folder = ROOT / "inbedder" if name == "inbedder" else ROOT / Path(path).parent / name
    badges = {
        "python": f"python: {versions[0]} – {versions[-1]}",
        "licence": f"licence: {package['license']}",
        "types": f"types: {'py.typed' if (folder / 'py.typed').is_file() else 'none'}",
    }
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for badge, text in badges.items():
        assert f"<title>{text}</title>" in (ROOT / "docs" / "pictures" / f"badge-{badge}.svg").read_text(encoding="utf-8")
        assert f"(docs/pictures/badge-{badge}.svg)" in readme
    assert package["requires-python"] == f">={versions[0]}"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert package["authors"] == citation["authors"]


def test_citation_names_the_package_and_its_five_papers():
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (content["title"], content["version"], content["license"]) == ("inbedder", inbedder.__version__, "Apache-2.0")
    titles = [reference["title"] for reference in content["references"]]
    assert len(titles) == 5 and all(reference["authors"] for reference in content["references"])
    for word in ("Answer is All You Need", "One Embedder", "C-STS", "Data-CUBE", "INSTRUCTOR:"):
        assert sum(title.startswith(word) for title in titles) == 1


def wording_scores() -> dict[str, dict[str, float]]:
    """Mean scores over seeds of ``mini`` under single wordings and under means over several, by task."""
    cells = update_tables.load_cells(ROOT / "evaluation" / "results" / "wordings.json")
    raw = [cell for cell in cells if (cell.model, cell.vectors) == ("mini", "raw")]
    return {
        task: {score: mean(cell.scores[score] for cell in raw if cell.task == task) for score in raw[0].scores}
        for task in dict.fromkeys(cell.task for cell in raw)
    }


@pytest.mark.parametrize(("task", "scores"), wording_scores().items(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_mean_of_wordings_is_safer_than_one_wording(task, scores):
    assert min(scores["mean_of_3_worst"], scores["mean_of_5_worst"]) >= scores["single_worst"] + 0.5
    assert min(scores["mean_of_3_mean"], scores["mean_of_5_mean"]) >= scores["single_mean"] - 1.0


def test_default_namer_was_judged_best():
    marks = json.loads((ROOT / "scripts" / "results" / "names.json").read_text(encoding="utf-8"))["mean_mark"]
    assert max(marks, key=marks.get) == "phrases"


@pytest.mark.parametrize(
    ("pattern", "file", "path"),
    [
        (r"opens in (\S+) seconds", "scripts/results/page.json", ["cells", "texts=50000", "milliseconds_to_open"]),
        (r"30 groups take (\S+) seconds", "evaluation/results/million.json", ["cases", "rows=1000000&k=30", "seconds"]),
        (r"two workers do (\S+) times", "scripts/results/ray.json", ["speed", "ratio"]),
    ],
)
def test_numbers_in_sentences_are_those_of_the_results(pattern, file, path):
    number_shown = re.search(pattern, (ROOT / "docs" / "models.md").read_text(encoding="utf-8"))[1]
    value = update_tables.look_up(json.loads((ROOT / file).read_text(encoding="utf-8")), path)
    assert float(number_shown) == round(
        value / 1000 if path[-1].startswith("milliseconds") else value, len(number_shown.partition(".")[2])
    )
