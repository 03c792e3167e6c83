import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from inbedder.errors import RecipeError
from inbedder_finetune.contrastive import contrastive_losses, contrastive_trainer
from inbedder_finetune.contrastive import train_contrastive as contrastive
from inbedder_finetune.contrastive.contrastive_losses import compute_loss, make_loss
from inbedder_finetune.contrastive.instructed_texts import make_prompt_tokenizer, tokenize_texts
from inbedder_finetune.contrastive.pairs import InstructedText
from inbedder_finetune.contrastive.train_contrastive import finetune, load_encoder, load_training_pairs, parse_recipe, preview
from inbedder_finetune.registry import read_method
from tests.conftest import GOLDEN, assert_close

ROOT = GOLDEN.parents[2]
WORDS = {"cats": "dogs", "voucher": "account", "lamp": "box", "delivery": "cats"}


@pytest.fixture
def pairs(tmp_path):
    rows = [
        {
            "query": ["What is it about? ", f"I love {word} number {i}"],
            "pos": ["What is it about? ", f"{word} {word} {i}"],
            "neg": [["Not this: ", f"{wrong_word} number {i}"]],
            "task_id": word,
        }
        for i in range(5)
        for word, wrong_word in WORDS.items()
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def make_recipe(model, folder, output, *, training=None, data=None, **settings):
    settings.setdefault("max_length", 48)
    schedule = {"batch_size": 4, "learning_rate": 5e-3, "max_steps": 12, "save_steps": 6, "log_steps": 1}
    return parse_recipe(
        {
            "model": model,
            "data": {"folder": str(folder), "sources": ["pairs.jsonl"], **(data or {})},
            "training": {"output": str(output), **schedule, **(training or {})},
            **settings,
        }
    )


def losses(folder, key="loss"):
    states = sorted(Path(folder).glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
    return [entry[key] for entry in json.loads(states[-1].read_text())["log_history"] if key in entry]


def make_labels(rows=5, columns=3, anchors=None):
    texts = torch.arange(rows * columns).reshape(columns, rows).T
    return torch.cat([torch.ones(rows, 1) if anchors is None else torch.tensor(anchors)[:, None], texts], dim=1).long()


def tokenize_columns(model, columns, rows=5):
    texts = [[InstructedText(f"{column} {i}: ", f"I love cats {column * i}") for i in range(rows)] for column in range(columns)]
    return [tokenize_texts(make_prompt_tokenizer(model.tokenizer, 48), column) for column in texts]


@pytest.mark.parametrize("micro_batch", [None, 2], ids=["plain", "cached"])
@pytest.mark.parametrize("hard", [0, 2])
def test_the_loss_of_a_model_is_that_of_its_embeddings(make_model, micro_batch, hard):
    model = load_encoder(make_recipe(make_model("headless-bert"), ".", "out")).eval()
    labels = make_labels(columns=2 + hard, anchors=[1, 0, 1, 1, 1])
    loss = make_loss(model, 0.05, micro_batch=micro_batch)(tokenize_columns(model, 2 + hard), labels)
    with torch.no_grad():
        embeddings = [model(features)["sentence_embedding"] for features in tokenize_columns(model, 2 + hard)]
    assert_close(loss.item(), compute_loss(embeddings, labels, 0.05).item())
    loss.backward()
    assert any(weights.grad is not None and weights.grad.abs().max() > 0 for weights in model.parameters())


@pytest.mark.parametrize("anchors", [None, [1, 0, 1, 1, 0]], ids=["all", "some"])
def test_cached_and_plain_gradients_are_equal(make_model, anchors):
    gradients = []
    for micro_batch in (None, 2):
        model = load_encoder(make_recipe(make_model("headless-bert"), ".", "out")).eval()
        loss = make_loss(model, 0.1, micro_batch=micro_batch)
        loss(tokenize_columns(model, 3), make_labels(anchors=anchors)).backward()
        gradients.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name].numpy(), gradient.numpy(), 1e-4)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("headless-bert", {}),
        ("roberta", {"training": {"micro_batch": 2, "bf16": True}}),
        ("t5", {"training": {"gradient_checkpointing": True}}),
        ("bert", {"lora": {"r": 8, "alpha": 16}, "training": {"learning_rate": 2e-2}}),
    ],
)
def test_training_lowers_the_loss_and_sentence_transformers_loads_it(make_model, pairs, family, settings):
    settings = dict(settings)
    training = {"max_steps": 20, "save_steps": 20, **settings.pop("training", {})}
    folder = finetune(make_recipe(make_model(family), pairs, pairs / "out", training=training, **settings))
    curve = losses(folder)
    assert np.mean(curve[-8:]) < np.mean(curve[:8])  # an epoch has eight steps
    modules = [one["type"].rsplit(".", 1)[1] for one in json.loads((folder / "modules.json").read_text())]
    assert modules == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["include_prompt"] is False
    files = {path.name for path in folder.rglob("*") if path.is_file() and "checkpoint-" not in str(path)}
    assert not {Path(name).suffix for name in files} & {".bin", ".pt", ".pkl", ".pth"} and "model.safetensors" in files
    vectors = SentenceTransformer(str(folder)).encode(["I love cats", "I love dogs"], prompt="What is it about? ")
    before = load_encoder(make_recipe(make_model(family), pairs, "out")).encode(["I love cats"], prompt="What is it about? ")
    assert np.abs(vectors[0] - before[0]).max() > 1e-3
    assert_close(np.linalg.norm(vectors, axis=1), np.ones(2))


def test_the_merged_lora_equals_the_trained_model(make_model, pairs, monkeypatch):
    trained = []
    monkeypatch.setattr(
        contrastive, "_save", lambda model, recipe, save=contrastive._save: (trained.append(model), save(model, recipe))
    )
    folder = finetune(make_recipe(make_model("headless-bert"), pairs, pairs / "out", lora={"r": 4, "alpha": 8}))
    texts = ["I love cats", "How do I top up my account?"]
    assert_close(SentenceTransformer(str(folder)).encode(texts, prompt="Who? "), trained[0].eval().encode(texts, prompt="Who? "))


def test_resuming_gives_the_curve_and_weights_of_one_run(make_model, pairs, monkeypatch):
    model = make_model("headless-bert")
    training = {"save_steps": 9}  # in the second epoch of eight steps
    uninterrupted = finetune(make_recipe(model, pairs, pairs / "whole", training=training))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(contrastive_losses, "compute_cosines", interrupt_after(10, contrastive_losses.compute_cosines))
        finetune(make_recipe(model, pairs, pairs / "broken", training=training))
    with pytest.raises(RecipeError, match="belong to a run with another batches"):
        finetune(make_recipe(model, pairs, pairs / "broken", training=training), batches=[[0, 4]])
    resumed = finetune(make_recipe(model, pairs, pairs / "broken", training=training))
    assert losses(uninterrupted) == losses(resumed)
    first, second = (load_file(one / "model.safetensors") for one in (uninterrupted, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    saved = {"model.safetensors", "config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json"}
    assert saved <= json.loads((uninterrupted / "checksums.json").read_text()).keys()


def interrupt_after(calls, function):
    remaining = iter(range(2 * calls))  # two directions per step

    def run(*args):
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return function(*args)

    return run


def test_fixed_batches_are_trained_in_their_order(make_model, pairs, monkeypatch):
    recipe = make_recipe(make_model("headless-bert"), pairs, pairs / "out", training={"max_steps": 4})
    rows, batches_seen = load_training_pairs(recipe)[0], []

    class Spy(contrastive_trainer.InstructedCollator):
        def __call__(self, batch):
            batches_seen.append([one["query"][1] for one in batch])
            return super().__call__(batch)

    monkeypatch.setattr(contrastive_trainer, "InstructedCollator", Spy)
    batches = [[8, 0], [1, 5, 9], [4, 12]]
    finetune(recipe, batches=batches)
    expected = [[rows[row].query.text for row in batch] for batch in (*batches, batches[0])]
    assert batches_seen[:4] == expected
    with pytest.raises(RecipeError, match=r"Batch 0 mixes tasks: row 0 belongs to 'pairs.jsonl cats', row 1"):
        finetune(make_recipe(make_model("headless-bert"), pairs, pairs / "other"), batches=[[0, 1]])


@pytest.mark.parametrize("training", [{}, {"micro_batch": 2}, {"bf16": True}])
def test_a_run_that_diverges_stops_and_saves_nothing(make_model, pairs, training):
    training = {"learning_rate": 1e30, **training}
    with pytest.raises(RecipeError, match=r"is (nan|inf) at step [234] of 12, .* No model was saved"):
        finetune(make_recipe(make_model("headless-bert"), pairs, pairs / "out", training=training))
    assert [path.name for path in (pairs / "out").iterdir()] == ["run.json"]


def test_batches_of_one_row_without_negatives_train_nothing(make_model, pairs):
    rows = [{"query": f"I love {word}", "pos": word, "task_id": word} for word in WORDS]
    (pairs / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"sources": [{"path": "pairs.jsonl", "negatives": 0}]}
    with pytest.raises(RecipeError, match="no effect in 12 steps: all gradients are 0"):
        finetune(make_recipe(make_model("headless-bert"), pairs, pairs / "out", data=data))
    assert not (pairs / "out" / "README.md").exists()


def test_random_batches_mix_rows_with_and_without_negatives(make_model, pairs):
    rows = [{"instruction": f"What number {i}?", "input": f"Number {i} came"} for i in range(4)]
    (pairs / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"sources": ["pairs.jsonl", {"path": "qa.jsonl", "format": "qa"}]}
    training = {"max_steps": 6, "save_steps": 2, "keep_checkpoints": None}
    folder = finetune(
        make_recipe(make_model("headless-bert"), pairs, pairs / "out", data=data, training=training, batches="random")
    )
    assert len(losses(folder)) == 6
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_held_out_rows_are_evaluated(make_model, pairs):
    recipe = make_recipe(
        make_model("headless-bert"), pairs, pairs / "out", data={"held_out": 4}, training={"eval_steps": 6, "max_steps": 6}
    )
    train_pairs, held_out_pairs = load_training_pairs(recipe)
    assert len(train_pairs) + len(held_out_pairs) == 20
    assert not {row.text for row in train_pairs} & {row.text for row in held_out_pairs}
    folder = finetune(recipe)
    assert len(losses(folder, "eval_loss")) == 1
    card = (folder / "README.md").read_text()
    assert "| pairs.jsonl | 16 | not stated in the recipe |" in card and "'What is it about? '" in card
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"sources": []}}, "names no data"),
        ({"data": "a"}, "data must be a table of settings"),
        (
            {"data": {"sources": [{"path": "a", "format": "csv"}]}},
            "data.sources.0.format is 'csv'; choose one of: medi, qa or nli",
        ),
        ({"training": {"batch_size": 1}}, "training.batch_size must be greater than or equal to 2"),
        ({"training": {"micro_batch": 0}}, "training.micro_batch must be greater than or equal to 1"),
        ({"temperature": 0}, "temperature must be greater than 0"),
        ({"temperatures": 1}, "The recipe has no setting temperatures"),
        ({"batches": "random", "curriculum": {}}, "curriculum orders batches of one task: set batches=task"),
        ({"curriculum": {"tour": "2-opt", "steps": 9}}, "curriculum.steps has no effect without annealing"),
        ({"curriculum": {"tasks": False, "steps": 9}}, "curriculum.steps has no effect without annealing"),
        ({"curriculum": {"direction": "text"}}, "curriculum.direction has no effect without curriculum.threshold"),
        ({"denominator": "positives"}, "choose one of: batch, hard-negatives or negatives"),
        (
            {"denominator": "negatives", "data": {"sources": [{"path": "a", "format": "qa"}]}},
            "denominator=negatives needs hard negatives, and a has none",
        ),
    ],
)
def test_a_wrong_setting_is_named(change, message):
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"data": {"sources": ["a.jsonl"]}, **change})


def test_the_papers_settings_are_the_defaults():
    recipe = parse_recipe({"data": {"sources": ["a.jsonl"]}})
    assert (recipe.temperature, recipe.training.learning_rate, recipe.training.warmup) == (0.01, 2e-5, 0.1)
    assert recipe.model == "all-MiniLM-L6-v2"


@pytest.mark.parametrize("name", ["instructor-base", "instructor-large", "instructor-xl", "data-cube"])
def test_published_recipes_have_the_papers_settings(name):
    recipe = read_method(name)[1]
    training = recipe.training
    assert (recipe.temperature, training.learning_rate, training.warmup, recipe.max_length) == (0.01, 2e-5, 0.1, 512)
    if name == "data-cube":
        assert (recipe.model, recipe.denominator, training.batch_size) == ("hkunlp/instructor-large", "negatives", 64)
        assert (recipe.curriculum.model, recipe.curriculum.tour) == ("hkunlp/instructor-large", "annealing")
        assert (recipe.curriculum.steps, training.max_steps) == (None, None)
    else:
        assert recipe.model == f"sentence-transformers/gtr-t5-{name.removeprefix('instructor-')}"
        assert (recipe.denominator, training.batch_size) == ("hard-negatives", 4)
        assert training.max_steps == (40_000 if name == "instructor-base" else 20_000)


def test_a_model_that_does_not_fit_is_named(make_model, pairs, monkeypatch):
    with pytest.raises(RecipeError, match="Cannot load /nowhere"):
        load_encoder(make_recipe("/nowhere", pairs, "out"))
    with pytest.raises(RecipeError, match=r"takes at most 254 tokens. Set max_length to 254 or less"):
        load_encoder(make_recipe(make_model("roberta"), pairs, "out", max_length=255))
    encoder = Transformer(make_model("headless-bert"))
    folder = pairs / "last"
    SentenceTransformer(modules=[encoder, Pooling(32, "lasttoken")]).save_pretrained(str(folder), create_model_card=False)
    with pytest.raises(RecipeError, match="does not pool by the mean"):
        load_encoder(make_recipe(str(folder), pairs, "out"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="runs in one process"):
        finetune(make_recipe(make_model("headless-bert"), pairs, pairs / "out"))


def test_a_dry_run_shows_inputs_and_pooled_tokens(make_model, pairs):
    text = preview(make_recipe(make_model("headless-bert"), pairs, pairs / "out"))
    assert "query: 'What is it about? I love cats number 0'" in text
    assert "pooled: ['i', 'love', 'cats'," in text
    assert text.splitlines()[-1] == "pairs.jsonl delivery  5  1"
    assert not (pairs / "out").exists()


@pytest.mark.slow
def test_the_tiny_recipe_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    method, recipe = read_method("tests/data/recipes/instructor-tiny.yaml", [f"training.output={tmp_path / 'out'}"])
    curve = losses(method.finetune(recipe))
    assert np.mean(curve[-5:]) < 0.7 * np.mean(curve[:5])
