from statistics import mean

import pytest
from typer.testing import CliRunner

from inbedder.cli import app as cli
from inbedder.options import Reencoding
from inbedder.prompting.templates import get_template
from inbedder_evaluation.embedders import make_embedders
from inbedder_evaluation.paper_numbers import compare_with_published, read_published_models
from inbedder_evaluation.results import Cell, load_cells
from inbedder_evaluation.tasks import Data, build_tasks

OPT = "BrandonZYW/opt-1.3b-InBedder"
AWARENESS = ("IntentEmotion", "InstructSTSB", "NYT two-criteria clustering")
RERANKING = ("AskUbuntuDupQuestions", "SciDocsRR", "StackOverflowDupQuestions")
GENERIC = (*(f"{name} reranking" for name in RERANKING), "TwentyNewsgroups clustering")
TASKS = {*AWARENESS, *GENERIC}


def find_published(name):
    return next(model for model in read_published_models() if model["name"] == name)


def cell(task, score, *, model=OPT, vectors="raw", seed=0, main="main"):
    return Cell(model, "1", task, "1", vectors, seed, main, {main: score, "other": 0.0}, "", 0.0)


def test_the_papers_models_have_all_seven_tasks_of_tables_1_and_2():
    models = read_published_models()
    assert len(models) == 14
    names = {model["local_name"] for model in models}
    assert len(names) == 14
    assert all(set(model["scores"]) >= TASKS for model in models)
    assert find_published("llama-2-13b-chat")["scores"]["TwentyNewsgroups clustering"] == 30.77


def test_averages_of_the_papers_tables_follow_from_the_scores():
    """The paper's tables state the average of each row, which guards against a number in the wrong column."""
    averages = {"roberta-large-alpaca": (40.12, 52.90), "opt-1.3b-alpaca": (27.53, 51.62), "opt-2.7b-alpaca": (30.79, 51.62)}
    averages |= {"llama-2-7b-chat": (41.76, 49.46), "llama-2-13b-chat": (42.03, 50.24), "llama-2-7b-w/o-process": (52.49, 59.86)}
    for model in read_published_models():
        for task_names, average in zip((AWARENESS, GENERIC), averages.get(model["name"], ()), strict=False):
            assert mean(model["scores"][task] for task in task_names) == pytest.approx(average, abs=0.01)


def test_a_replica_is_compared_by_the_last_part_of_its_name():
    cells = [cell("IntentEmotion", 70.0, model=f"runs/reproduce/{name}") for name in ("opt-350m-InBedder", "opt-350m")]
    assert {row[0] for row in compare_with_published(cells)[1:]} == {"runs/reproduce/opt-350m-InBedder"}


def test_a_model_is_compared_in_any_dtype(make_model):
    name = make_embedders(make_model("opt"), dtype="float32", pooling="avg-gen", max_new_tokens=20)[0].name.split(", ", 1)[1]
    assert name == "avg-gen, dtype='float32', max_new_tokens=20"
    rows = compare_with_published([cell("IntentEmotion", 70.0, model=f"runs/alpaca-opt-1.3b, {name}")])
    assert rows[1][:1] + rows[1][3:4] == [f"runs/alpaca-opt-1.3b, {name}", "70.0"]


def test_local_names_are_those_that_evaluate_writes(make_model, make_sentence_model):
    chat = {"template": get_template("llama-2-chat-inst"), "max_new_tokens": 40}
    options = [
        ("opt", {"pooling": "avg-gen", "max_new_tokens": 20}),
        ("llama", {"pooling": "re-enc", "reencoding": Reencoding(1, 0.6), "truncation_side": "prompt-left", **chat}),
    ]
    local_names = {make_embedders(make_model(family), **one)[0].name.split(", ", 1)[1] for family, one in options}
    as_pattern = {"template": get_template("{instruction}: {input}"), "pooling": "mean"}
    local_names.add(make_embedders(str(make_sentence_model()), **as_pattern)[0].name.split(", ", 1)[1])
    published = {model["local_name"].split(", ", 1)[1] for model in read_published_models() if ", " in model["local_name"]}
    assert published == {*local_names, "no instruction"}


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
    published = {**find_published("opt-1.3b-InBedder"), "local_name": model}
    monkeypatch.setattr("inbedder_evaluation.paper_numbers.read_published_models", lambda: [published])
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
