import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, BertModel

from inbedder.conditional.config import Encoding
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.errors import InputError, RecipeError
from inbedder_finetune.conditional import conditional_trainer
from inbedder_finetune.conditional.conditional_recipe import parse_recipe
from inbedder_finetune.conditional.train_conditional import finetune, load_rated, preview
from tests.finetune.answering.test_train_answering import interrupt_after, losses


@pytest.fixture
def rows(tmp_path):
    lines = ["pair,split,sentence1,sentence2,condition,label"]
    for i in range(12):
        split = "validation" if i >= 9 else "train"
        lines += [f"p{i},{split},I love cats {i},I love dogs {i},{c},{label}" for c, label in (("love", 5), ("animals", 1))]
    (tmp_path / "c.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def calm_model(make_model, tmp_path):
    """A tiny model that learns in a few steps, without dropout and with smaller initial weights."""
    config = AutoConfig.from_pretrained(make_model("bert"))
    config.initializer_range, config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.2, 0.0, 0.0
    torch.manual_seed(7)
    for part in (BertModel(config), AutoTokenizer.from_pretrained(make_model("bert"))):
        part.save_pretrained(tmp_path / "calm")
    return str(tmp_path / "calm")


def make_recipe(model, rows, output, *, encoding=None, training=None, data=None, **settings):
    return parse_recipe(
        {
            "model": model,
            "encoding": {"max_length": 48, **(encoding or {})},
            "data": {"train": "c.csv", "validation": "c.csv", "folder": str(rows), **(data or {})},
            "training": {
                "output": str(output),
                "batch_size": 6,
                "learning_rate": 5e-3,
                "max_steps": 6,
                "save_steps": 3,
                "log_steps": 1,
                **(training or {}),
            },
            **settings,
        }
    )


@pytest.mark.parametrize(
    ("encoding", "settings"),
    [
        ({"kind": "cross", "transform": True}, {}),
        ({"kind": "cross", "pooler": "cls", "transform": True}, {}),
        ({"kind": "bi", "pooler": "cls", "input": "pair"}, {}),
        ({"kind": "cross", "reads": "condition"}, {}),
        ({"kind": "cross", "pooler": "spans"}, {}),
        ({"kind": "bi"}, {"objective": {"loss": "quad+mse"}}),
        ({"kind": "bi", "pooler": "pooler", "scaled": [-1, 1]}, {"objective": {"loss": "quad", "margin": 0.5}}),
        ({"kind": "bi"}, {"lora": {"r": 8, "alpha": 16}, "objective": {"loss": "quad"}}),
        ({"kind": "tri"}, {"objective": {"loss": "quad"}}),
        ({"kind": "tri", "combine": "mlp", "pooler": "pooler"}, {"lora": {"r": 8, "alpha": 16}}),
    ],
)
def test_training_lowers_the_loss_and_the_result_loads(calm_model, rows, tmp_path, encoding, settings):
    training = {"max_steps": 24, "save_steps": 24}
    recipe = make_recipe(calm_model, rows, tmp_path / "out", encoding=encoding, training=training, **settings)
    folder = finetune(recipe)
    curve = losses(folder)
    assert np.mean(curve[-6:]) < 0.5 * np.mean(curve[:6])
    model = ConditionalEncoder.load(folder)
    assert model.encoding == recipe.encoding
    high, low = (model.similarity("I love cats 1", "I love dogs 1", condition=one) for one in ("love", "animals"))
    assert high > low
    assert json.loads((folder / "run.json").read_text())["training"]["seed"] == 0
    card = (folder / "README.md").read_text()
    assert "18 rows of 9 pairs" in card and "| 8 | " in card
    assert not {path.suffix for path in folder.iterdir()} & {".bin", ".pt", ".pkl", ".pth"}


def test_the_saved_weights_are_those_that_were_trained(make_model, rows, tmp_path):
    base = load_file(f"{make_model('bert')}/model.safetensors")
    folder = finetune(make_recipe(make_model("bert"), rows, tmp_path / "out", lora={"r": 4, "alpha": 8}))
    trained = load_file(folder / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    assert not any("lora" in one for one in trained)
    assert not torch.equal(trained[name], base[f"bert.{name}"])
    assert torch.equal(trained["embeddings.word_embeddings.weight"], base["bert.embeddings.word_embeddings.weight"])


def test_the_head_has_its_own_learning_rate(make_model, rows, tmp_path):
    def train(name, **training):
        recipe = make_recipe(make_model("bert"), rows, tmp_path / name, encoding={"kind": "tri"}, training=training)
        folder = finetune(recipe)
        return load_file(folder / "head.safetensors")["condition.1.weight"], load_file(folder / "backbone" / "model.safetensors")

    layer = "encoder.layer.0.attention.self.query.weight"
    frozen_head, trained_backbone = train("frozen_head", head_learning_rate=1e-12)
    initial_head, initial_backbone = train("base", head_learning_rate=1e-12, learning_rate=1e-12)
    trained_head, _ = train("trained_head")
    torch.testing.assert_close(frozen_head, initial_head, atol=1e-9, rtol=0)
    assert (trained_head - initial_head).abs().max() > 1e-3
    assert (trained_backbone[layer] - initial_backbone[layer]).abs().max() > 1e-3


def test_resuming_gives_the_curve_and_weights_of_one_run(make_model, rows, tmp_path):
    settings = {"objective": {"loss": "quad+mse"}, "encoding": {"kind": "tri"}}
    training = {"head_learning_rate": 1e-2}
    uninterrupted = finetune(make_recipe(make_model("bert"), rows, tmp_path / "whole", training=training, **settings))
    interrupted = tmp_path / "broken"
    recipe = make_recipe(make_model("bert"), rows, interrupted, training=training, **settings)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(conditional_trainer, "compute_batch_loss", interrupt_after(4, conditional_trainer.compute_batch_loss))
        finetune(recipe)
    with pytest.raises(RecipeError, match=r"belong to a run with another training. Resume with the original"):
        finetune(make_recipe(make_model("bert"), rows, interrupted, training={**training, "seed": 5}, **settings))
    resumed = finetune(recipe)
    assert losses(uninterrupted) == losses(resumed)
    saved = {"backbone/model.safetensors", "backbone/config.json", "conditional.json", "head.safetensors"}
    assert saved <= json.loads((uninterrupted / "checksums.json").read_text()).keys()
    for file in ("backbone/model.safetensors", "head.safetensors"):
        first, second = (load_file(one / file) for one in (uninterrupted, resumed))
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bi", {"objective": {"loss": "quad+mse"}}),
        ("cross", {"lora": {"r": 4, "alpha": 8}}),
        ("tri", {"training": {"learning_rate": 1e-3, "head_learning_rate": 1e37}}),
    ],
)
def test_a_run_that_diverges_stops_and_saves_nothing(make_model, rows, tmp_path, kind, settings):
    settings = {"training": {"learning_rate": 1e30}, **settings}
    recipe = make_recipe(make_model("bert"), rows, tmp_path / "out", encoding={"kind": kind}, **settings)
    with pytest.raises(RecipeError, match=r"is (nan|inf) at step [2345] of 6, where the learning rate is \de\+\d\d"):
        finetune(recipe)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name not in ("run.json", "checkpoint-3")]


def test_seeds_decide_everything(make_model, rows, tmp_path):
    folders = [
        finetune(make_recipe(make_model("bert"), rows, tmp_path / str(i), training={"seed": seed, "max_steps": 2}))
        for i, seed in enumerate((1, 1, 2))
    ]
    first, repeated, reseeded = (load_file(folder / "model.safetensors") for folder in folders)
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(first[name], repeated[name]) and not torch.equal(first[name], reseeded[name])


def test_both_rows_of_a_pair_are_in_one_batch(make_model, rows, tmp_path, monkeypatch):
    batches = []

    def record(scores, targets, higher, recipe):
        batches.append((targets.tolist(), higher.tolist()))
        return scores.sum()

    monkeypatch.setattr(conditional_trainer, "compute_batch_loss", record)
    settings = {"objective": {"loss": "quad"}, "training": {"max_steps": 3}}
    finetune(make_recipe(make_model("bert"), rows, tmp_path / "out", **settings))
    assert batches == [([1.0, 0.0] * 3, [True, False] * 3)] * 3


@pytest.mark.parametrize(("norm", "clips"), [(1.0, True), (0, False)])
def test_gradients_are_clipped_unless_the_norm_is_zero(make_model, rows, tmp_path, monkeypatch, norm, clips):
    clipped = []
    clip = conditional_trainer.CheckedTrainer._clip_grad_norm
    monkeypatch.setattr(
        conditional_trainer.CheckedTrainer, "_clip_grad_norm", lambda self, model: clipped.append(1) or clip(self, model)
    )
    finetune(make_recipe(make_model("bert"), rows, tmp_path / "out", training={"max_steps": 1, "max_grad_norm": norm}))
    assert bool(clipped) == clips


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_table_without_conditions_trains_on_ratings_from_zero(calm_model, tmp_path, caplog, kind):
    lines = [f"I love cats {i},{second} {i},{label}" for i in range(9) for second, label in (("I love dogs", 0), ("cats", 5))]
    (tmp_path / "train.csv").write_text("\n".join(["sentence1,sentence2,label", *lines]))
    (tmp_path / "validation.csv").write_text("\n".join(["sentence1,sentence2,label", *lines[:2], "the lamp,the box,2.5"]))
    data = {"train": "train.csv", "validation": "validation.csv", "allow_overlap": True}
    encoding = {"kind": kind, "input": "pair", "pooler": "cls", "reads": "sentences", "transform": True}
    settings = {"encoding": encoding, "data": data, "training": {"max_steps": 24, "save_steps": 24, "max_grad_norm": 0}}
    recipe = make_recipe(calm_model, tmp_path, tmp_path / "out", **settings)
    assert "== row 1, rating 0, scaled 0\n" in preview(recipe) and "rating 5, scaled 1\n" in preview(recipe)
    folder = finetune(recipe)
    assert "2 of 3 validation rows have sentences of training rows" in caplog.text
    curve = losses(folder)
    assert np.mean(curve[-6:]) < 0.5 * np.mean(curve[:6])
    low, high = ConditionalEncoder.load(folder).similarity(["I love cats 1"] * 2, ["I love dogs 1", "cats 1"])
    assert high > low
    with pytest.raises(RecipeError, match=r"hold the same two sentences.*data.allow_overlap=true accepts the overlap"):
        load_rated(make_recipe(calm_model, tmp_path, tmp_path / "out", encoding=encoding, data={**data, "allow_overlap": False}))
    with pytest.raises(InputError, match="lacks the column condition"):
        load_rated(make_recipe(calm_model, tmp_path, tmp_path / "out", data=data))


def test_the_dry_run_shows_inputs_targets_and_counts(make_model, rows, tmp_path):
    text = preview(make_recipe(make_model("bert"), rows, tmp_path / "out", encoding={"kind": "cross", "scaled": [0, 2]}))
    assert "== row 1, rating 5, scaled 2" in text
    assert "[CLS] i love cats [UNK] [SEP] i love dogs [UNK] [SEP] love [SEP]" in text
    assert "train          18 rows      9 pairs" in text and "validation      6 rows      3 pairs" in text
    assert not (tmp_path / "out").exists()


def test_rows_that_do_not_fit_are_named(make_model, rows, tmp_path, monkeypatch):
    def load(**data):
        return load_rated(make_recipe(make_model("bert"), rows, tmp_path / "out", data=data, objective={"loss": "quad"}))

    with pytest.raises(RecipeError, match=r"none.csv does not exist. Set data.folder to the folder of none.csv"):
        load(train="none.csv")
    text = (rows / "c.csv").read_text()
    (rows / "unsplit.csv").write_text(text.replace(",split,", ",part,"))
    with pytest.raises(RecipeError, match="hold the same two sentences, so the validation would score training rows"):
        load(train="unsplit.csv", validation="unsplit.csv")
    swapped = [line.split(",", 1)[1] for line in text.replace("cats 1,I love dogs 1", "dogs 1,I love cats 1").splitlines()]
    (rows / "swapped.csv").write_text("\n".join(swapped).replace("split,", "part,"))
    with pytest.raises(RecipeError, match=r"Row 1 of c.csv and row 1 of swapped.csv hold the same two sentences"):
        load(validation="swapped.csv")
    (rows / "other.csv").write_text(
        text.replace("I love", "we love").replace("validation", "test").replace("train", "validation")
    )
    assert len(load(validation="other.csv")[1]) == 18  # its pairs have the same names, but other sentences
    (rows / "equal.csv").write_text(text.replace(",5", ",1"))
    with pytest.raises(RecipeError, match=r"No pair of equal.csv has a higher- and a lower-rated condition.*objective.loss=mse"):
        load(train="equal.csv")
    train_rows, validation_rows = load(pairs=4, validation=None)
    assert (len(train_rows), validation_rows) == (8, [])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="trains in one process"):
        finetune(make_recipe(make_model("bert"), rows, tmp_path / "out"))


def test_a_resumed_run_may_end_with_steps_without_a_gradient(make_model, rows, tmp_path, monkeypatch):
    recipe = make_recipe(make_model("bert"), rows, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(conditional_trainer, "compute_batch_loss", interrupt_after(4, conditional_trainer.compute_batch_loss))
        finetune(recipe)
    monkeypatch.setattr(
        conditional_trainer, "compute_batch_loss", lambda scores, *_: 0 * scores.sum()
    )  # as Quad within its margin
    assert (finetune(recipe) / "model.safetensors").exists()


def test_a_validation_file_without_a_usable_row_is_refused(make_model, rows, tmp_path):
    text = (rows / "c.csv").read_text().replace("validation,", "train,")
    (rows / "bad.csv").write_text("\n".join(f"{line.rsplit(',', 1)[0]},9" for line in text.splitlines()[1:]))
    (rows / "bad.csv").write_text(text.splitlines()[0].replace("split", "part") + "\n" + (rows / "bad.csv").read_text())
    with pytest.raises(RecipeError, match=r"bad.csv has no row to score. Correct its rows, or set data.validation=null"):
        load_rated(make_recipe(make_model("bert"), rows, tmp_path / "out", data={"validation": "bad.csv", "skip_bad": True}))


def test_pairs_without_order_have_only_mse_terms(make_model, rows, tmp_path, caplog):
    text = (rows / "c.csv").read_text().replace("p0,train,I love cats 0,I love dogs 0,love,5", "")
    (rows / "c.csv").write_text(text.replace("I love cats 1,I love dogs 1,love,5", "I love dogs 1,I love cats 1,love,1"))

    def load_training_rows(loss):
        return load_rated(make_recipe(make_model("bert"), rows, tmp_path / "out", objective={"loss": loss}))[0]

    assert [len(load_training_rows(loss)) for loss in ("mse", "quad+mse", "quad")] == [17, 17, 14]
    assert "2 pairs without order have only MSE terms" in caplog.text
    assert "2 pairs without order are skipped by Quad" in caplog.text
    assert np.isfinite(
        losses(finetune(make_recipe(make_model("bert"), rows, tmp_path / "out", objective={"loss": "quad+mse"})))
    ).all()


def test_development_pairs_are_scored_and_not_trained_on(make_model, rows, tmp_path):
    def recipe(seed):
        data = {"validation": None, "development_pairs": 4}
        return make_recipe(make_model("bert"), rows, tmp_path / "out", data=data, training={"seed": seed})

    train_rows, validation_rows = load_rated(recipe(0))
    assert (len(train_rows), len(validation_rows)) == (10, 8)
    assert not {row.pair for row in train_rows} & {row.pair for row in validation_rows}
    assert load_rated(recipe(1))[1] == validation_rows  # independent of the training seed
    assert "10 rows of 5 pairs" in (finetune(recipe(0)) / "README.md").read_text()
    assert "validation      8 rows      4 pairs" in preview(recipe(0))


def test_a_run_that_would_fail_does_not_start(make_model, rows, tmp_path):
    def start(**settings):
        finetune(make_recipe(make_model("bert"), rows, tmp_path / "out", **settings))

    ConditionalEncoder.of_base(make_model("bert"), Encoding(kind="tri", max_length=48)).save(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "conditional.json").rename(tmp_path / "out" / "conditional.json")
    with pytest.raises(RecipeError, match=r"contains an encoder with another kind. Remove it, or choose another training.output"):
        start()
    (tmp_path / "out" / "conditional.json").unlink()
    with pytest.raises(RecipeError, match=r"lora does not fit the model: .*nosuch.*Name other lora.target_modules"):
        start(lora={"target_modules": ["nosuch"]})
    with pytest.raises(RecipeError, match="nosuch is not supported, only"):
        start(training={"report_to": "nosuch"})
