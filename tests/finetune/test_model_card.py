import json

from inbedder import InBedder
from inbedder_finetune.answering.train_answering import finetune, preview
from inbedder_finetune.model_card import save_curve
from inbedder_finetune.registry import read_method
from tests.conftest import GOLDEN
from tests.finetune.answering.test_train_answering import make_recipe


def test_a_dry_run_shows_prompts_and_loss_tokens_and_writes_nothing(data, tmp_path, make_model):
    text = preview(make_recipe(make_model("opt"), data, tmp_path / "out"))
    assert "I love cats number 0" in text and "### Response:" in text
    assert "answer: 'cats'" in text
    assert text.splitlines()[3].startswith("loss on: [")
    assert text.splitlines()[-1].split() == ["qa.jsonl", "32", "1.2", "0.0%"]
    assert not (tmp_path / "out").exists()


def test_the_result_holds_a_card_a_curve_and_its_template(data, tmp_path, make_model):
    changes = {"sources": [{"path": "qa.jsonl", "licence": "MIT"}], "held_out": 4}
    template = "{input}\n{instruction} Answer:"
    training = {"eval_steps": 3}
    recipe = make_recipe(make_model("bert"), data, tmp_path / "out", more_data=changes, template=template, training=training)
    folder = finetune(recipe)
    card = (folder / "README.md").read_text()
    assert "| qa.jsonl | 28 | MIT |" in card
    assert "eval_loss" in card and "6 steps" in card
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert InBedder(folder).template.pattern == template
    state = json.loads((folder / "checkpoint-6" / "trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "eval_loss" in entry] == [3, 6]


def test_a_curve_without_points_is_still_a_picture(tmp_path):
    assert save_curve([], tmp_path / "c.png")


def test_a_tiny_recipe_of_the_repository_previews(monkeypatch):
    monkeypatch.chdir(GOLDEN.parents[2])
    assert "qa.jsonl" in preview(read_method("tests/data/recipes/tiny-t5.yaml")[1])
