from pathlib import Path

import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.questions import read_questions
from inbedder_finetune.recipe import find_recipe, read_settings
from inbedder_finetune.registry import read_method

RECIPES = sorted((Path(__file__).parents[2] / "finetune" / "recipes").glob("*/*.yaml"))
SMALL = {"model": "m", "data": {"sources": ["a.jsonl"]}}
LATE_INTERACTION = {"late_interaction": True, "template": "compact", "lora": {}}
GROUPS = {"facts": [{"path": "a.jsonl", "cap": 10}, {"path": "b.jsonl", "cap": 4}], "form": ["form.jsonl"]}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_parses(path):
    assert read_method(path)[1].training.output.startswith("runs/")


def test_settings_are_changed_by_key(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("model: m\ndata: {sources: [a.jsonl]}\n")
    recipe = read_method(path, ["training.seed=3", "lora.r=8", "data.folder=x", "mask_length=answer"])[1]
    assert (recipe.training.seed, recipe.lora.r, recipe.data.folder, recipe.mask_length) == (3, 8, "x", "answer")


QUESTION = {"tokens": "question"}
SOFT = {"pooling": "soft-gen", "reencode_weight": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**SMALL, **LATE_INTERACTION, "mask_length": "answer"}, "late_interaction needs a fixed mask_length"),
        ({**SMALL, **LATE_INTERACTION, "template": "alpaca"}, "late_interaction needs a template"),
        ({"model": "m", "data": {"groups": ["a"]}}, "data.groups must be a table of named lists"),
        ({"model": "m", "data": {"groups": {"facts": "a"}}}, "data.groups must be a table of named lists"),
        ({"model": "m", "data": {"groups": GROUPS, "shares": {"fact": 2}}}, "name groups .facts, form.; it has no 'fact'"),
        ({"model": "m", "data": {"groups": GROUPS, "shares": 2}}, "data.shares must name groups"),
        ({"model": "m", "data": {"groups": GROUPS, "shares": {"form": 0.5}}}, "form.jsonl has no cap"),
        ({**SMALL, "models": 1}, "The recipe has no setting models. Known settings: model, data"),
        ({**SMALL, "training": {"lr": 1}}, "training has no setting lr. Known settings: output"),
        ({"model": "m"}, "names no data"),
        ({"data": {"sources": ["a"]}}, "The recipe lacks model"),
        ({**SMALL, "lora": 64}, "lora must be a table"),
        ({"model": "m", "data": {"sources": [{"cap": 3}]}}, "needs either a path or a hub id"),
        ({"model": "m", "data": "abc"}, "data must be a table"),
        ({"model": "m", "data": {"sources": None}}, "names no data"),
        ({**SMALL, "training": {"epochs": "two"}}, "training.epochs must be a valid number, .*, not 'two'"),
        ({**SMALL, "training": {"batch_size": 0}}, "training.batch_size must be greater than or equal to 1, not 0"),
        ({**SMALL, "training": {"bf16": "perhaps"}}, "training.bf16 must be a valid boolean, .*not 'perhaps'"),
        ({"model": "m", "data": {"sources": [{"path": "a", "hub": "b"}]}}, "needs either a path or a hub id"),
        ({**SMALL, "objective": {"pooling": "mean"}}, "objective.pooling is 'mean'; choose one of: 1st-gen, avg-gen or soft-gen"),
        ({**SMALL, "objective": {"token_weight": 0}}, "No objective has a weight"),
        ({**SMALL, "quantization": "nf4"}, "Quantized weights cannot be trained: add a lora"),
        ({**SMALL, "quantization": "nf3", "lora": {}}, "quantization is 'nf3'"),
        ({**SMALL, "training": {"batch_size": 64, "micro_batch": 24}}, "must be a multiple of training.micro_batch"),
        ({"model": "m", "data": {"sources": {"path": "a"}}}, "data.sources must be a list of files or tables"),
        (
            {"model": "m", "data": {"sources": [{"path": "a", "answers": {True: "positive"}}]}},
            "must be a valid string, not True. Quote yes, no, true, false and numbers",
        ),
        ({**SMALL, "training": {"scheduler": "cosin"}}, "training.scheduler is 'cosin'; choose one of: linear, cosine, "),
        ({"model": "m", "data": {"sources": [{"path": "a", "fields": {"inptu": "b"}}]}}, "'inptu'; choose one of: input, instr"),
        ({**SMALL, "training": {"epochs": 0}}, "training.epochs must be greater than 0, not 0"),
        ({**SMALL, "training": {"epochs": float("inf")}}, "training.epochs must be a finite number, not inf"),
        ({**SMALL, "training": {"max_steps": 0}}, "training.max_steps must be greater than or equal to 1, not 0"),
        ({**SMALL, "training": {"learning_rate": float("nan")}}, "training.learning_rate must be a finite number, not nan"),
        ({**SMALL, "training": {"dropout": 1}}, "training.dropout must be less than 1, not 1"),
        ({**SMALL, "lora": {"dropout": 1}}, "lora.dropout must be less than 1, not 1"),
        ({**SMALL, "objective": {"reencode_weight": float("inf")}}, "objective.reencode_weight must be a finite number, not inf"),
        ({**SMALL, "training": {"seed": -1}}, "training.seed must be greater than or equal to 0, not -1"),
        ({**SMALL, "training": {"seed": 2**32}}, "training.seed must be less than 4294967296, not 4294967296"),
        ({**SMALL, "lora": {"tokens": "text"}}, "lora.tokens is 'text'; choose one of: all or question"),
        ({**SMALL, "lora": QUESTION, "template": "alpaca"}, "lora.tokens=question needs a template with {input} before"),
        ({**SMALL, "lora": {**QUESTION, "bias": "all"}}, "whose biases lora.bias would train: set it to none"),
        (
            {**SMALL, "lora": QUESTION, "training": {"gradient_checkpointing": True}},
            "training.gradient_checkpointing to false",
        ),
        (
            {**SMALL, "objective": SOFT, "training": {"gradient_checkpointing": True}},
            "soft-gen reads .*gradient_checkpointing to false",
        ),
        ({**SMALL, "objective": SOFT, "options": {"max_new_tokens": 5}}, "remove options.max_new_tokens"),
        ({**SMALL, "objective": {"pooling": "soft-gen"}}, "pooling=soft-gen trains a vector: set objective.reencode_weight"),
        ({**SMALL, "mask_length": 0}, "mask_length must be at least 1, or answer; not 0"),
        ({**SMALL, "mask_length": "three"}, "mask_length must be at least 1, or answer; not 'three'"),
    ],
)
def test_a_wrong_setting_is_named(values, message):
    with pytest.raises(RecipeError, match=message):
        parse_recipe(values)


@pytest.mark.parametrize("content", ["- a list", "a: [", ""])
def test_a_file_that_is_not_a_recipe_is_refused(tmp_path, content):
    (tmp_path / "r.yaml").write_text(content)
    with pytest.raises(RecipeError, match=r"recipe"):
        read_method(tmp_path / "r.yaml")[1]


def test_numbers_may_be_written_as_text():
    recipe = parse_recipe({**SMALL, "training": {"learning_rate": "1e-3", "epochs": 2}})
    assert (recipe.training.learning_rate, recipe.training.epochs) == (0.001, 2.0)


def test_a_missing_file_and_a_change_without_value_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="Cannot read the recipe"):
        read_method(tmp_path / "none.yaml")[1]
    (tmp_path / "r.yaml").write_text("model: m\ndata: {sources: [a.jsonl]}\n")
    with pytest.raises(RecipeError, match="--set takes key=value"):
        read_method(tmp_path / "r.yaml", ["training.seed"])[1]


def test_list_items_can_be_set_and_bad_keys_are_named(tmp_path):
    (tmp_path / "r.yaml").write_text("model: m\ndata:\n  sources:\n    - {path: a}\n    - {path: b}\n")
    recipe = read_method(tmp_path / "r.yaml", ["data.sources.1.cap=5", "training.seed=3"])[1]
    assert [source.cap for source in recipe.data.sources] == [None, 5]
    assert recipe.training.seed == 3
    for change in ("data.sources.7.cap=5", "data.sources.x.cap=5", "training.output=["):
        with pytest.raises(RecipeError, match="Cannot apply --set"):
            read_method(tmp_path / "r.yaml", [change])[1]


def test_a_recipe_may_extend_another(tmp_path):
    (tmp_path / "base.yaml").write_text("model: a\ndata: {sources: [x], folder: f}\ntraining: {seed: 1, group: 4}\n")
    (tmp_path / "more.yaml").write_text("extends: base.yaml\nmodel: b\ntraining: {seed: 2}\n")
    recipe = read_method(tmp_path / "more.yaml", ["training.epochs=3"])[1]
    assert (recipe.model, recipe.data.folder, recipe.training.seed) == ("b", "f", 2)
    assert (recipe.training.group, recipe.training.epochs) == (4, 3)


def test_a_source_may_name_a_table_of_the_recipe():
    source = {"path": "a", "instructions": "mood", "keep_instructions": "mood", "answers": "moods"}
    tables = {"questions": {"mood": ["How?"]}, "answers": {"moods": {"joy": "glad"}}}
    first = parse_recipe({"model": "m", "data": {"sources": [source]}, **tables}).data.sources[0]
    assert (first.instructions, first.keep_instructions, first.answers) == (("How?",), ("How?",), {"joy": "glad"})
    with pytest.raises(RecipeError, match="instructions names 'mood'; the known questions are: "):
        parse_recipe({"model": "m", "data": {"sources": [source]}})


def test_groups_of_sources_are_scaled_by_their_shares():
    def paths_and_caps(**shares):
        recipe = parse_recipe({"model": "m", "data": {"sources": ["own.jsonl"], "groups": GROUPS, "shares": shares}})
        return {source.path: source.cap for source in recipe.data.sources}

    assert paths_and_caps() == {"own.jsonl": None, "a.jsonl": 10, "b.jsonl": 4, "form.jsonl": None}
    assert paths_and_caps(facts=1.5) == {"own.jsonl": None, "a.jsonl": 15, "b.jsonl": 6, "form.jsonl": None}
    assert paths_and_caps(facts=0, form=0) == {"own.jsonl": None}


def test_a_source_may_name_shipped_questions_and_a_recipe_may_replace_them():
    source = {"path": "a", "instructions": "emotion", "answers": "emotion"}
    (shipped,) = parse_recipe({"model": "m", "data": {"sources": [source]}}).data.sources
    assert list(shipped.instructions) == read_questions()["emotion"].ask
    assert shipped.answers == read_questions()["emotion"].answers
    (replaced,) = parse_recipe({"model": "m", "questions": {"emotion": ["Why?"]}, "data": {"sources": [source]}}).data.sources
    assert replaced.instructions == ("Why?",)


def test_an_unknown_target_is_refused():
    with pytest.raises(RecipeError, match="target is 'title'; choose one of: answer or text"):
        parse_recipe({"model": "m", "data": {"sources": [{"path": "a", "target": "title"}]}})


def test_a_shipped_recipe_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("csts-bi") == find_recipe("csts-bi.yaml") == RECIPES[0].parents[1] / "csts" / "csts-bi.yaml"
    assert find_recipe("elsewhere/csts-bi.yaml") == Path("elsewhere/csts-bi.yaml")


def test_a_file_takes_precedence_over_a_shipped_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini.yaml").write_text("model: other\n", encoding="utf-8")
    assert read_settings("mini.yaml") == {"model": "other"}
