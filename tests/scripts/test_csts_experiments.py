import csv
import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inbedder.errors import InputError
from inbedder_evaluation.results import load_cells, make_table

SPEC = importlib.util.spec_from_file_location(
    "csts_experiments", Path(__file__).parents[2] / "scripts" / "train" / "csts_experiments.py"
)
csts_experiments = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(csts_experiments)
app = csts_experiments.app
PNG = b"\x89PNG"


@pytest.fixture
def rows(tmp_path):
    lines = ["pair,split,sentence1,sentence2,condition,label"]
    for i in range(10):
        split = ("train", "train", "validation", "test", "test")[i % 5]
        both = (("love", 5 - i % 2), ("animals", 1 + i % 2))
        lines += [f"p{i},{split},I love cats {i},I love dogs {i},{condition},{label}" for condition, label in both]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    return tmp_path / "rows.csv"


def experiment(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def short(model):
    settings = (f"model={model}", "training.max_steps=1", "training.batch_size=4", "encoding.max_length=64")
    return [part for one in settings for part in ("--set", one)]


@pytest.mark.slow
def test_the_table_holds_baselines_encoders_and_ablations(make_model, rows, tmp_path):
    model = make_model("bert")
    options = ("--data", rows, "--model", model, "--baseline", "all-MiniLM-L6-v2", "--seeds", "2", *short(model))
    output = experiment("table", "-o", tmp_path / "t.json", *options)
    cells = load_cells(tmp_path / "t.json")
    names = {cell.model for cell in cells}
    assert {
        "bi-encoder, trained",
        "bi-encoder on all-MiniLM-L6-v2, trained",
        "cross-encoder, condition alone",
        model,
        "all-MiniLM-L6-v2, instruction in front",
    } <= names
    trained = [cell for cell in cells if cell.model == "tri-encoder, trained"]
    tasks = ["C-STS (rows.csv)", "C-STS (rows.csv), validation"]
    assert [(cell.seed, cell.task) for cell in trained] == [(seed, task) for seed in (0, 1) for task in tasks]
    assert set(trained[0].scores) == {"spearman", "pearson"}
    assert trained[0].metadata["recipe"] == "csts-tri.yaml" and "machine" in trained[0].metadata
    assert {cell.first_prompt for cell in cells} == {""}  # rows of C-STS may not be redistributed
    assert {cell.task for cell in cells} == {*tasks, "C-STS (rows.csv), as a question"}
    assert "| tri-encoder, trained |" in output and "±" in output


@pytest.mark.slow
def test_the_curve_ends_with_all_pairs_and_keeps_finished_cells(make_model, rows, tmp_path):
    options = ("curve", "-o", tmp_path / "c.json", "--data", rows, "--seeds", "2", *short(make_model("bert")))
    experiment(*options, "--size", "2")
    first = load_cells(tmp_path / "c.json")
    experiment(*options, "--size", "2", "--size", "3")
    cells = load_cells(tmp_path / "c.json")
    assert cells[:24] == first and len(cells) == 36
    assert [cell.metadata["pairs"] for cell in cells if cell.model.startswith("bi")][::2] == [2, 2, 4, 4, 3, 3]
    assert {cell.model for cell in first} >= {"bi-encoder, 2 pairs", "bi-encoder, trained"}
    assert make_table(cells)[1][1].count("±") == 1  # the seeds of one size are one model
    assert (tmp_path / "c_curve.png").read_bytes().startswith(PNG)


def test_the_papers_curve_reads_the_authors_files(make_model, rows, tmp_path, monkeypatch):
    header, *lines = rows.read_text().splitlines()
    for split in ("train", "validation"):
        table = [line.split(",") for line in [header, *lines] if line.split(",")[1] in ("split", split)]
        (tmp_path / f"csts_{split}.csv").write_text("\n".join(",".join(cells[2:]) for cells in table))
    recipe = (csts_experiments.RECIPES / "csts-tri.yaml").read_text()
    (tmp_path / "csts-paper.yaml").write_text(f"{recipe}\nvariants: {{tri-tiny: {{}}}}\n")
    monkeypatch.setattr(csts_experiments, "KINDS", ("tri",))
    monkeypatch.setattr(csts_experiments, "RECIPES", tmp_path)
    options = ("curve", "-o", tmp_path / "c.json", "--data", tmp_path, "--seeds", "1", "--paper-model", "tiny", "--size", "3")
    experiment(*options, *short(make_model("bert")))
    cells = load_cells(tmp_path / "c.json")
    assert {cell.task for cell in cells} == {"C-STS (csts_validation.csv), validation"}
    assert [cell.model for cell in cells] == ["tri-encoder on tiny, 3 pairs", "tri-encoder on tiny, trained"]
    assert cells[0].metadata["recipe"] == "csts-paper.yaml"


def test_a_split_keeps_pairs_together_in_either_order(tmp_path):
    lines = ["sentence1,sentence2,condition,label"]
    for i in range(8):
        lines += [f"=cat {i},dog {i},love,{1 + i % 5}", f"dog {i},=cat {i},animals,{5 - i % 5}"]
    (tmp_path / "rated.csv").write_text("\n".join(lines))
    experiment("split", tmp_path / "rated.csv", "-o", tmp_path / "split.csv", "--pairs", "2")
    with (tmp_path / "split.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert Counter(row["split"] for row in rows) == {"train": 8, "validation": 4, "test": 4}
    pairs = {(frozenset((row["sentence1"], row["sentence2"])), row["split"]) for row in rows}
    assert len(pairs) == 8
    assert {row["sentence1"] for row in rows} == {f"{animal} {i}" for animal in ("=cat", "dog") for i in range(8)}


def test_only_the_named_encoders_are_trained(make_model, rows, tmp_path):
    names = ["tri-encoder on mini, quad+mse", "bi-encoder on mini, at its masks, with rows of our own"]
    options = [part for name in names for part in ("--only", name)]
    changes = [*short(make_model("bert")), "--set", "data.pairs=3"]
    experiment("real", "-o", tmp_path / "r.json", "--data", rows, *options, *changes)
    cells = load_cells(tmp_path / "r.json")
    assert {cell.model for cell in cells} == {"tri-encoder on mini, quad+mse, 800 pairs", names[1]}
    assert {cell.task for cell in cells} == {"C-STS (rows.csv)", "C-STS (rows.csv), validation"}
    assert all(cell.metadata["pairs"] == 3 for cell in cells)


def test_missing_files_are_named(rows):
    for arguments, message in (
        (("-o", "t.txt"), "must be a .json file"),
        (("-o", "t.json", "--data", "none.csv"), "does not exist"),
        (("-o", "t.json", "--data", rows, "--size", "50"), "has 4 training pairs"),
    ):
        result = CliRunner().invoke(app, ["curve", *map(str, arguments)])
        assert isinstance(result.exception, InputError) and message in str(result.exception)
