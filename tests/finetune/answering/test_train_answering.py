import json

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from inbedder import InBedder
from inbedder.errors import ModelError, RecipeError
from inbedder_finetune import training_run
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.answering_trainer import AnsweringTrainer
from inbedder_finetune.answering.examples import Collator
from inbedder_finetune.answering.forward_pass import pool_states
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.train_answering import finetune
from inbedder_finetune.answering.trainable_families import choose_family, make_examples
from inbedder_finetune.answering.trainable_model import load_trainable, prepare_model
from inbedder_finetune.answering.training_row import Row
from inbedder_finetune.registry import read_method
from tests.conftest import GOLDEN


def make_recipe(model, data, output, *, training=None, **settings):
    return parse_recipe(
        {
            "model": model,
            "max_length": settings.pop("max_length", 96),
            "data": {"folder": str(data), "sources": ["qa.jsonl"], "cache": None, **settings.pop("more_data", {})},
            "training": {
                "output": str(output),
                "batch_size": 8,
                "learning_rate": 5e-3,
                "max_steps": 6,
                "save_steps": 3,
                "log_steps": 1,
                **(training or {}),
            },
            **settings,
        }
    )


def losses(folder):
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda path: path.stat().st_mtime)
    return [entry["loss"] for entry in json.loads(states[-1].read_text())["log_history"] if "loss" in entry]


def test_a_short_run_logs_its_loss_at_least_ten_times(make_model, data, tmp_path):
    training = {"max_steps": 12, "save_steps": 12, "log_steps": 50}
    assert len(losses(finetune(make_recipe(make_model("opt"), data, tmp_path / "out", training=training)))) == 12


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {"lora": {"r": 8, "alpha": 16, "modules_to_save": ["transform"]}}),
        ("bert", {}),
        ("roberta", {"mask_length": "answer"}),
        ("opt", {"lora": {"r": 8, "alpha": 16}}),
        ("llama", {"training": {"dropout": 0.0, "attention": "eager"}}),
        ("t5", {}),
        ("t5", {"lora": {"r": 8, "alpha": 16}}),
        ("bert", {"objective": {"token_weight": 0, "reencode_weight": 1}}),
        ("opt", {"objective": {"reencode_weight": 1, "pooling": "1st-gen"}}),
        ("llama", {"objective": {"cosine_weight": 1, "pooling": "avg-gen"}}),
        ("t5", {"objective": {"reencode_weight": 1}}),
        ("narrow-opt", {"objective": {"reencode_weight": 1}}),
        ("opt", {"lora": {"r": 8, "alpha": 16}, "quantization": "nf4"}),
        ("roberta", {"training": {"gradient_checkpointing": True, "micro_batch": 2}}),
        ("opt", {"training": {"gradient_checkpointing": True, "group": 4}}),
        ("llama", {"training": {"group": 4}, "objective": {"reencode_weight": 1, "pooling": "1st-gen"}}),
        ("llama", {"objective": {"reencode_weight": 1, "pooling": "soft-gen"}, "training": {"micro_batch": 4}}),
        ("llama", {"lora": {"r": 8, "alpha": 16, "tokens": "question"}, "training": {"group": 4}}),
        ("opt", {"answer_prefix": " ", "lora": {"r": 8, "alpha": 16}}),
    ],
)
def test_training_lowers_the_loss_and_the_result_loads(make_model, data, tmp_path, family, settings):
    settings = dict(settings)
    training = {"max_steps": 16, "save_steps": 16, **settings.pop("training", {})}
    folder = finetune(make_recipe(make_model(family), data, tmp_path / "out", training=training, **settings))
    curve = losses(folder)
    assert np.mean(curve[-4:]) < np.mean(curve[:4])  # an epoch has four steps
    before = InBedder(make_model(family)).encode("I love cats", "What animals do they love?")
    model = InBedder(folder)
    assert np.abs(model.encode("I love cats", "What animals do they love?") - before).max() > 1e-3
    assert (folder / "inbedder.json").exists()
    assert not {path.suffix for path in folder.iterdir()} & {".bin", ".pt", ".pkl", ".pth"}


def test_soft_tokens_and_adapters_of_the_question_are_read_as_trained(make_model, data, tmp_path):
    objective = {"token_weight": 0, "reencode_weight": 1, "pooling": "soft-gen", "soft_tokens": 2}
    lora = {"r": 8, "alpha": 16, "tokens": "question"}
    recipe = make_recipe(make_model("llama"), data, tmp_path / "out", lora=lora, objective=objective)
    model = InBedder(finetune(recipe))
    assert (model.pooling, model.options.encoding.max_new_tokens) == ("soft-gen", 2)
    assert model.backbone.text_model is not None
    row = Row("I love cats", "What animals do they love?", "cats", "qa")
    plan = resolve_plan(recipe)
    example = make_examples("causal", model.backbone.tokenizer, [row], plan.answer_format)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(make_model("llama")), tmp_path / "out").eval()
    forward = choose_family(load_trainable(plan.model, plan.schedule, 1), plan.model, None).forward
    output = forward(adapted, adapted.get_base_model(), Collator(0, side="left")(example))
    vector = pool_states(output, "soft-gen")[0, -1].detach().numpy()
    assert np.abs(model.encode(row.text, row.instruction) - vector).max() < 1e-4


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("bert", {"objective": {"reencode_weight": 1, "pooling": "soft-gen"}}, "is a masked LM, without the pooling 'soft-gen'"),
        ("t5", {"lora": {"r": 8, "tokens": "question"}}, "cannot read a text without its adapters"),
    ],
)
def test_families_without_soft_tokens_or_text_states_are_refused(make_model, data, tmp_path, family, settings, message):
    with pytest.raises(RecipeError, match=message):
        finetune(make_recipe(make_model(family), data, tmp_path / "out", **settings))


def test_a_trained_model_gives_the_answers(data, tmp_path):
    training = {"max_steps": 150, "save_steps": 200, "learning_rate": 2e-3, "dropout": 0.0}
    model = InBedder(finetune(make_recipe(str(GOLDEN / "roberta"), data, tmp_path / "out", training=training)))
    answers = model.answer([f"I love {word} number 3" for word in ("cats", "dogs")], "What animals do they love?")
    assert answers == ["cats", "dogs"]


def test_frozen_parameters_do_not_change(make_model, data, tmp_path):
    before = AutoModelForMaskedLM.from_pretrained(make_model("bert")).state_dict()
    recipe = make_recipe(make_model("bert"), data, tmp_path / "out", training={"max_steps": 2, "freeze": "embeddings"})
    after = AutoModelForMaskedLM.from_pretrained(finetune(recipe)).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "bert.encoder.layer.0.attention.self.query.weight" in changed
    assert not {name for name in changed if "embeddings" in name}
    with pytest.raises(RecipeError, match=r"training.freeze='nothing' matches no parameter"):
        finetune(make_recipe(make_model("bert"), data, tmp_path / "other", training={"freeze": "nothing"}))


def test_resuming_gives_the_curve_and_weights_of_one_run(make_model, data, tmp_path):
    lora = {"r": 4, "alpha": 8, "dropout": 0.1}
    uninterrupted = finetune(make_recipe(make_model("bert"), data, tmp_path / "whole", lora=lora))
    interrupted = tmp_path / "broken"
    recipe = make_recipe(make_model("bert"), data, interrupted, lora=lora)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AnsweringTrainer, "_forward", interrupt_after(4, AnsweringTrainer._forward))
        finetune(recipe)
    with pytest.raises(RecipeError, match=r"belong to a run with another training. Resume with the original"):
        finetune(make_recipe(make_model("bert"), data, interrupted, lora=lora, training={"seed": 5}))
    resumed = finetune(recipe)
    assert losses(uninterrupted) == losses(resumed)
    first, second = (load_file(one / "adapter_model.safetensors") for one in (uninterrupted, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "optimizer.pt", "scheduler.pt"])
def test_a_damaged_last_checkpoint_is_skipped_on_resuming(make_model, data, tmp_path, caplog, file):
    settings = {"lora": {"r": 4, "alpha": 8, "dropout": 0.1}, "training": {"save_steps": 2}}
    output = finetune(make_recipe(make_model("bert"), data, tmp_path / "run", **settings))
    first = load_file(output / "adapter_model.safetensors")
    last = max(output.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    (last / file).write_bytes((last / file).read_bytes()[:-40])
    finetune(make_recipe(make_model("bert"), data, tmp_path / "run", **settings))
    assert f"Skipping {last}: {file} is damaged" in caplog.text
    second = load_file(output / "adapter_model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_result_has_checksums_and_is_refused_when_damaged(make_model, data, tmp_path):
    output = finetune(make_recipe(make_model("bert"), data, tmp_path / "run", lora={"r": 4, "alpha": 8}))
    assert set(json.loads((output / "checksums.json").read_text())) == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "inbedder.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    weights = bytearray((output / "adapter_model.safetensors").read_bytes())
    weights[-1] ^= 1
    (output / "adapter_model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match=r"adapter_model.safetensors is not the file that was saved"):
        InBedder(output)


def test_an_adapter_is_saved_in_float16(make_model, data, tmp_path):
    lora, file = {"r": 4, "alpha": 8}, "adapter_model.safetensors"
    complete, half = (
        load_file(finetune(make_recipe(make_model("bert"), data, tmp_path / dtype, lora=lora | {"save_dtype": dtype})) / file)
        for dtype in ("float32", "float16")
    )
    assert {tensor.dtype for tensor in half.values()} == {torch.float16}
    assert all(torch.equal(complete[name].half(), half[name]) for name in complete)
    assert InBedder(tmp_path / "float16").encode(["a text"], instruction="A question?").shape == (1, 32)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_micro_batches_change_neither_loss_nor_weights(make_model, data, tmp_path, family):
    objective = {"reencode_weight": 1, "cosine_weight": 0.5}
    curves, weights = [], []
    for size in (8, 2):
        training = {"dropout": 0.0, "micro_batch": size, "learning_rate": 1e-3, "max_steps": 3}
        folder = finetune(make_recipe(make_model(family), data, tmp_path / f"{size}", training=training, objective=objective))
        curves.append(losses(folder))
        weights.append(load_file(folder / "model.safetensors"))
    assert curves[1] == pytest.approx(curves[0], abs=1e-3)
    before = InBedder(make_model(family)).backbone.model.state_dict()
    matrices = [name for name, tensor in weights[0].items() if tensor.ndim == 2]  # AdamW makes noise of biases without gradient
    assert all((weights[1][name] - weights[0][name]).abs().mean() < 1e-5 for name in matrices)
    assert any((weights[0][name] - before[name]).abs().mean() > 5e-4 for name in matrices)


def interrupt_after(steps, loss):
    calls = iter(range(1000))

    def run(*args):
        if next(calls) == steps:
            raise KeyboardInterrupt
        return loss(*args)

    return run


def return_nan_at(call, loss):
    calls = iter(range(1000))
    return lambda *args: loss(*args) * (float("nan") if next(calls) == call else 1)


def list_results(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("checkpoint-"))


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {}),
        ("opt", {"lora": {"r": 4, "alpha": 8}}),
        ("t5", {"training": {"micro_batch": 2}, "objective": {"reencode_weight": 1}}),
        ("llama", {"training": {"bf16": True}}),
        ("llama", {"objective": {"token_weight": 0, "reencode_weight": 1}}),
        ("bert", {"objective": {"token_weight": 0, "cosine_weight": 1}}),
    ],
)
def test_a_run_that_diverges_stops_and_saves_nothing(make_model, data, tmp_path, family, settings):
    settings = dict(settings)
    training = {"learning_rate": 1e30, **settings.pop("training", {})}
    recipe = make_recipe(make_model(family), data, tmp_path / "out", training=training, **settings)
    with pytest.raises(RecipeError, match=r"is (nan|inf) at step [23] of 6, where the learning rate is \d.*learning_rate=1e\+30"):
        finetune(recipe)
    assert list_results(tmp_path / "out") == ["run.json"]


def test_a_resumed_run_that_diverges_stops_too(make_model, data, tmp_path, monkeypatch):
    recipe = make_recipe(make_model("bert"), data, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AnsweringTrainer, "_forward", interrupt_after(4, AnsweringTrainer._forward))
        finetune(recipe)
    monkeypatch.setattr(AnsweringTrainer, "_compute_token_loss", return_nan_at(1, AnsweringTrainer._compute_token_loss))
    with pytest.raises(RecipeError, match="The loss is nan at step 5 of 6"):
        finetune(recipe)
    assert list_results(tmp_path / "out") == ["run.json"]


def test_weights_that_are_not_finite_are_not_saved(make_model, data, tmp_path, monkeypatch):
    class Poison(training_run.LogEvery):
        def on_step_end(self, args, state, control, *, model, **_kwargs):
            if state.global_step == state.max_steps:
                model.get_parameter("bert.encoder.layer.0.output.dense.bias").data.fill_(float("inf"))

    monkeypatch.setattr(training_run, "LogEvery", Poison)
    with pytest.raises(RecipeError, match=r"The weights bert.encoder.layer.0.output.dense.bias are not finite"):
        finetune(make_recipe(make_model("bert"), data, tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint-3", "run.json"]


def test_a_model_that_is_not_finite_is_not_trained(make_model, data, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert"))
    model.bert.embeddings.LayerNorm.bias.data[0] = float("nan")
    model.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(make_model("bert")).save_pretrained(tmp_path / "broken")
    with pytest.raises(
        RecipeError, match=r"embeddings.LayerNorm.bias are not finite.* check the model that training starts from"
    ):
        finetune(make_recipe(str(tmp_path / "broken"), data, tmp_path / "out"))


@pytest.mark.parametrize("warmup", [0.1, 1])
def test_a_run_of_one_step_trains(make_model, data, tmp_path, warmup):
    training = {"batch_size": 64, "max_steps": None, "warmup": warmup}  # of 32 rows
    folder = finetune(make_recipe(make_model("bert"), data, tmp_path / "out", training=training))
    before, after = (AutoModelForMaskedLM.from_pretrained(name).state_dict() for name in (make_model("bert"), folder))
    changes = [float((after[name] - weight).abs().max()) for name, weight in before.items()]
    assert max(changes) == pytest.approx(5e-3, rel=1e-3)  # AdamW's first step is the learning rate


def test_a_run_without_effect_is_refused(make_model, data, tmp_path):
    with pytest.raises(RecipeError, match=r"had no effect in 6 steps: no weight changed. No model was saved"):
        finetune(make_recipe(make_model("bert"), data, tmp_path / "slow", training={"learning_rate": 1e-60}))
    with pytest.raises(RecipeError, match=r"leaves no weight to train. Change training.freeze"):
        finetune(make_recipe(make_model("bert"), data, tmp_path / "frozen", training={"freeze": "."}))
    answers = {answer: "cats" for answer in ("cats", "dogs", "account voucher", "lamp")}
    more_data = {"sources": [{"path": "qa.jsonl", "answers": answers}]}
    objective = {"token_weight": 0, "reencode_weight": 1}  # equal answers are no negatives
    recipe = make_recipe(
        make_model("bert"), data, tmp_path / "equal", training={"weight_decay": 0.1}, more_data=more_data, objective=objective
    )
    with pytest.raises(RecipeError, match=r"had no effect in 6 steps: all gradients are 0, so no row has anything to learn"):
        finetune(recipe)
    assert not list(tmp_path.glob("*/README.md"))


def test_a_run_that_would_fail_does_not_start(make_model, data, tmp_path, monkeypatch):
    lora = {"r": 4, "alpha": 8}
    with pytest.raises(RecipeError, match=r"LoRA would leave them random.*modules_to_save"):
        finetune(make_recipe(make_model("headless-bert"), data, tmp_path / "out", lora=lora))
    adapter = finetune(make_recipe(make_model("bert"), data, tmp_path / "adapter", lora=lora))
    with pytest.raises(RecipeError, match=r"is already an adapter. Fine-tune its base"):
        finetune(make_recipe(str(adapter), data, tmp_path / "out", lora=lora))
    with pytest.raises(RecipeError, match=r"takes at most 254 tokens. Set max_length to 254 or less"):
        finetune(make_recipe(make_model("roberta"), data, tmp_path / "out", max_length=255))
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(RecipeError, match="batch_size=8 is not a multiple of 3 processes"):
        finetune(make_recipe(make_model("bert"), data, tmp_path / "out"))


@pytest.mark.parametrize(
    ("recipe", "family"),
    [
        ("roberta-large", "roberta"),
        ("opt-350m", "narrow-opt"),
        ("opt-1.3b", "opt"),
        ("opt-6.7b", "opt"),
        ("llama-2-7b-unstripped", "llama"),
        ("llama-2-7b-qlora", "llama"),
        ("alpaca-opt-1.3b", "opt"),
        ("alpaca-roberta-large", "roberta"),
    ],
)
def test_the_papers_recipes_run_with_tiny_weights_and_local_rows(make_model, data, tmp_path, recipe, family):
    changes = [f"model={make_model(family)}", "max_length=96", "max_answer_tokens=8", "training.max_steps=2"]
    changes += [f"data.folder={data}", "data.sources=[qa.jsonl]", "data.cache=null", f"training.output={tmp_path / 'out'}"]
    changes += ["training.batch_size=16", "training.micro_batch=8"]
    settings = read_method(recipe, changes)[1]
    assert settings.training.scheduler == "cosine" and settings.training.warmup == 0.03
    model = InBedder(finetune(settings))
    assert model.encode(["I love cats"], "What animals do they love?").shape == (1, 16 if family == "narrow-opt" else 32)
    assert model.template.name == ("alpaca-short" if "alpaca" in recipe else "inbedder")


def test_weights_in_nf4_train_in_bfloat16_with_double_quantization(make_model, data, tmp_path):
    settings = {"quantization": "nf4", "lora": {"r": 4, "alpha": 8}}
    for bf16, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        recipe = make_recipe(make_model("llama"), data, tmp_path / "out", training={"bf16": bf16}, **settings)
        plan = resolve_plan(recipe)
        loaded = load_trainable(plan.model, plan.schedule, 1)
        layers = [module for module in loaded.model.modules() if type(module).__name__ == "Linear4bit"]
        assert {layer.compute_dtype for layer in layers} == {dtype}
        assert all(layer.weight.quant_state.nested for layer in layers)
        parameters = list(prepare_model(loaded.model, plan.model, plan.schedule).named_parameters())
        assert {weight.dtype for name, weight in parameters if "layer" not in name or "lora" in name} == {torch.float32}


@pytest.mark.parametrize(
    ("recipe", "base", "micro_batch"),
    [
        ("opt-350m", "facebook/opt-350m", 16),
        ("opt-1.3b", "facebook/opt-1.3b", 8),
        ("opt-2.7b", "facebook/opt-2.7b", 4),
        ("opt-6.7b", "facebook/opt-6.7b", 8),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf", 8),
        ("llama-2-7b-unstripped", "meta-llama/Llama-2-7b-hf", 8),
        ("roberta-large", "FacebookAI/roberta-large", 16),
    ],
)
def test_the_papers_recipes_have_the_settings_of_the_authors(recipe, base, micro_batch):
    settings = read_method(recipe, [])[1]
    training, (source,) = settings.training, settings.data.sources
    assert (settings.model, settings.max_length, training.output) == (base, 512, f"runs/{recipe}")
    assert (training.epochs, training.batch_size, training.learning_rate, training.save_steps) == (1, 64, 2e-5, 2000)
    assert (training.warmup, training.weight_decay, training.group_by_length, settings.data.skip_bad) == (0.03, 0, False, True)
    assert (training.token_mean, training.micro_batch) == ("micro-batch", micro_batch)
    assert training.bf16 == (recipe in ("opt-6.7b", "llama-2-7b", "llama-2-7b-unstripped"))
    assert settings.max_answer_tokens == (256 if recipe == "llama-2-7b-unstripped" else 40)
    assert (settings.mask_length, settings.data.keep_unanswered) == (("answer", False) if "roberta" in recipe else (3, True))
    assert (settings.data.strip_stopwords, settings.data.stopwords) == (False, "nltk")
    is_on_hub = recipe != "llama-2-7b-unstripped"
    assert (source.hub, source.revision) == (("KomeijiForce/Inbedder-Pretrain-Data", "05bec95") if is_on_hub else (None, None))
    assert source.path == ("" if is_on_hub else "qa_collection.json")


@pytest.mark.parametrize(
    ("recipe", "base", "micro_batch"),
    [("alpaca-opt-2.7b", "facebook/opt-2.7b", 4), ("alpaca-roberta-large", "FacebookAI/roberta-large", 16)],
)
def test_alpaca_baselines_have_the_settings_of_the_authors(recipe, base, micro_batch):
    settings = read_method(recipe, [])[1]
    training = settings.training
    assert (settings.model, settings.max_length, settings.data.strip_stopwords) == (base, 512, False)
    assert (training.epochs, training.batch_size, training.learning_rate, training.save_steps) == (3, 64, 2e-5, 2000)
    assert (training.token_mean, training.micro_batch) == ("micro-batch", micro_batch)
    assert (settings.data.keep_unanswered, training.bf16) == ("opt" in recipe, False)
    assert [source.hub for source in settings.data.sources] == ["tatsu-lab/alpaca"]
