import csv

import pytest
import yaml
from typer.testing import CliRunner

from inbedder.cli import app
from inbedder.errors import RecipeError
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.trainable_model import load_trainable
from inbedder_finetune.init_recipe import write_recipe
from inbedder_finetune.registry import read_method

GOLDEN = "tests/data/golden/roberta"


@pytest.fixture
def table(tmp_path):
    with (tmp_path / "my own.csv").open("w", newline="") as file:
        rows = [[f"I love cats, number {i}", "What do they love?", "cats"] for i in range(40)]
        csv.writer(file).writerows([["Context", "Question", "Answer"], *rows])
    return tmp_path / "my own.csv"


def test_a_first_recipe_runs(table, tmp_path):
    write_recipe(table, tmp_path / "first.yaml")
    text = (tmp_path / "first.yaml").read_text()
    assert "Context holds the texts, Question the questions, Answer the answers" in text
    method, recipe = read_method(tmp_path / "first.yaml", [f"model={GOLDEN}", "data.cache=null"])
    assert (recipe.data.folder, recipe.data.sources[0].path) == (tmp_path.as_posix(), "my own.csv")
    assert [(source.path, source.cap) for source in recipe.data.sources[1:]] == [
        ("opinions.yaml", 10), ("requests.yaml", 10), ("scenes.yaml", 10), ("forms.yaml", 10)
    ]  # fmt: skip
    assert (recipe.training.output, recipe.training.batch_size, recipe.data.held_out) == ("runs/first", 8, 4)
    assert recipe.training.eval_steps == 6
    assert "loss on" in method.preview(recipe)
    assert yaml.safe_load(text)["lora"]["init_adapter"] == "mini"


def test_a_few_labels_are_learned_whole(tmp_path):
    lines = [f"text {i},Which event?,{('the Notre Dame fire', 'flood')[i % 2]}" for i in range(20)]
    (tmp_path / "labels.csv").write_text("\n".join(["text,question,answer", *lines]))
    write_recipe(tmp_path / "labels.csv", tmp_path / "labels.yaml")
    _, recipe = read_method(tmp_path / "labels.yaml", ["data.cache=null"])
    assert (recipe.mask_length, recipe.data.strip_stopwords) == (8, False)
    (tmp_path / "free.csv").write_text("\n".join(["text,question,answer", *(f"text {i},What?,thing {i}" for i in range(20))]))
    write_recipe(tmp_path / "free.csv", tmp_path / "free.yaml")
    _, recipe = read_method(tmp_path / "free.yaml", ["data.cache=null"])
    assert (recipe.mask_length, recipe.data.strip_stopwords) == (3, True)


def test_mini_is_not_trained_as_a_plain_masked_model(table, tmp_path):
    write_recipe(table, tmp_path / "first.yaml")
    _, recipe = read_method(tmp_path / "first.yaml", ["model=mini", "data.cache=null"])
    plan = resolve_plan(recipe)
    with pytest.raises(RecipeError, match=r"Train its base with lora\.init_adapter=mini"):
        load_trainable(plan.model, plan.schedule, 1)


def test_init_writes_a_recipe_and_overwrites_none(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["finetune", "--init", str(table)], catch_exceptions=False)
    assert result.exit_code == 0 and (tmp_path / "my own.yaml").exists()
    assert "inbedder finetune my own.yaml --dry-run" in result.output
    with pytest.raises(
        RecipeError, match=r"my own\.yaml already exists. Choose another name: inbedder finetune OTHER\.yaml --init"
    ):
        CliRunner().invoke(app, ["finetune", "--init", str(table)], catch_exceptions=False)
    assert CliRunner().invoke(app, ["finetune", "other.yaml", "--init", str(table)]).exit_code == 0
    assert CliRunner().invoke(app, ["finetune"]).exit_code == 2


def test_a_table_without_questions_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na b,x\n")
    message = (
        r"t\.csv has no column for instruction \(question, query\); output \(answer, answers, response\). Its columns are: 'text'"
    )
    with pytest.raises(RecipeError, match=message):
        write_recipe(tmp_path / "t.csv", tmp_path / "r.yaml")
    with pytest.raises(RecipeError, match="No such file"):
        write_recipe(tmp_path / "gone.csv", tmp_path / "r.yaml")
    assert not (tmp_path / "r.yaml").exists()
