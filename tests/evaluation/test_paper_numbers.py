from typer.testing import CliRunner

from inbedder.cli import app as cli
from inbedder_evaluation.paper_numbers import AWARENESS, compare_with_published, make_published_table, read_published_models
from inbedder_evaluation.results import Cell, load_cells
from inbedder_evaluation.tasks import Data, build_tasks

OPT = "BrandonZYW/opt-1.3b-InBedder"


def cell(task, score, *, model=OPT, vectors="raw", seed=0, main="main"):
    return Cell(model, "1", task, "1", vectors, seed, main, {main: score, "other": 0.0}, "", 0.0)


def test_the_papers_models_have_all_three_tests_of_awareness():
    assert [model["name"] for model in read_published_models()] == [
        "llama-2-7b-InBedder",
        "opt-6.7b-InBedder",
        "opt-2.7b-InBedder",
        "opt-1.3b-InBedder",
        "opt-350m-InBedder",
        "roberta-large-InBedder",
        "instructor-large",
        "e5-large-v2",
    ]
    assert all(set(AWARENESS) <= set(model["scores"]) for model in read_published_models())
    rows = make_published_table()
    assert rows[1][:5] == ["llama-2-7b-InBedder", "1st-gen, layer 32", "89.73", "22.07", "64.65"]
    assert rows[7][-1] == "table 1"


def test_expected_and_found_stand_side_by_side_and_say_whether_they_agree():
    cells = [
        cell("IntentEmotion", 90.5),
        cell("IntentEmotion", 10.0, vectors="centred"),
        cell("InstructSTSB", 3.0),
        cell("NYT two-criteria clustering, paper protocol", 50.0),
        cell("NYT two-criteria clustering, paper protocol", 52.0, seed=1),
        cell("IntentEmotion", 99.0, model="mini"),
    ]
    rows = compare_with_published(cells)
    assert rows[0] == ["model", "task", "expected", "found", "difference", "agrees"]
    assert rows[1] == [OPT, "IntentEmotion", "90.0", "90.5", "+0.5", "yes"]
    assert rows[2] == [OPT, "InstructSTSB", "7.5", "3.0", "-4.5", "no"]
    assert rows[3] == [OPT, "NYT two-criteria clustering", "53.1", "51.0", "-2.1", "yes"]
    assert {tuple(row[3:]) for row in rows[4:]} == {("", "", "not measured")}


def test_without_a_model_of_the_paper_there_is_nothing_to_compare():
    assert compare_with_published([cell("IntentEmotion", 90.0, model="mini")]) == []


def test_every_published_task_is_one_that_the_hub_offers(monkeypatch):
    rows = [{"text": f"{label} {i}", "cluster": label} for label in "ab" for i in range(9)]
    rows = [{**row, "anchor": "a", "positive": "b", "negative": "c"} for row in rows]
    rows = [{**row, "sentence1": "a", "sentence2": "b", "instruction": "c?", "score": i % 2} for i, row in enumerate(rows)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_options: rows)
    task_names = {task.info.name.split(", ")[0] for task in build_tasks(Data(hub=True, protocol="paper"))}
    assert {task for model in read_published_models() for task in model["scores"]} <= task_names


def test_evaluate_with_the_hub_checks_itself_against_the_papers_numbers(make_model, tmp_path, monkeypatch):
    rows = [{"anchor": f"a {i}", "positive": f"b {i}", "negative": f"c {i}"} for i in range(4)]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_options: rows)
    model = make_model("opt")
    monkeypatch.setattr(
        "inbedder_evaluation.paper_numbers.read_published_models", lambda: [{**read_published_models()[3], "local_name": model}]
    )
    arguments = ["evaluate", "--hub", "--protocol", "paper", "--task", "IntentEmotion", "--model", model]
    result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "r.json")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (row,) = (
        one for one in load_cells(tmp_path / "r.json") if (one.task, one.model, one.vectors) == ("IntentEmotion", model, "raw")
    )
    table = result.output.split("expected (the paper's numbers) and found")[1].splitlines()
    line = next(line for line in table if " IntentEmotion " in line)
    assert line.split()[2:4] == ["90.0", f"{row.scores['harmonic_mean']:.1f}"]
    assert line.endswith(("yes", "no"))
