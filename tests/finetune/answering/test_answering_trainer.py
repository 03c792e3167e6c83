import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.plan import resolve_plan
from inbedder_finetune.answering.qa_rows import load_rows
from inbedder_finetune.answering.train_answering import finetune
from inbedder_finetune.answering.trainable_families import make_examples

ANSWERS = ["cats", "two big dogs and a small horse", "", "no animals"]


@pytest.fixture
def make_recipe(make_model, tmp_path):
    rows = [{"input": f"text {i}", "instruction": "What do they love?", "output": answer} for i, answer in enumerate(ANSWERS)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(output="out", *, data=None, objective=None, **training):
        all_data = {"folder": str(tmp_path), "sources": ["qa.jsonl"], "cache": None, "keep_unanswered": True, **(data or {})}
        return parse_recipe(
            {
                "model": make_model("opt"),
                "max_length": 96,
                "data": all_data,
                "objective": objective or {},
                "training": {
                    "output": str(tmp_path / output),
                    "batch_size": 4,
                    "max_steps": 1,
                    "save_steps": 1,
                    "dropout": 0.0,
                    "bf16": False,
                    **training,
                },
            }
        )

    return make


def compute_token_losses(recipe):
    """Compute the losses of each row's answer tokens with transformers' model, and the model."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(recipe.model), AutoTokenizer.from_pretrained(recipe.model)
    losses = []
    for example in make_examples("causal", tokenizer, load_rows(recipe.data), resolve_plan(recipe).answer_format):
        ids, labels = (torch.tensor(example[name].tolist()) for name in ("input_ids", "labels"))
        logits = model.eval()(ids[None]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], labels[1:], reduction="none")[labels[1:] >= 0])
    return losses, model


def train_one_step(recipe):
    """Train one step; return its loss and the norm of its gradient."""
    folder = finetune(recipe)
    log = json.loads((folder / "checkpoint-1" / "trainer_state.json").read_text())["log_history"]
    (entry,) = [entry for entry in log if "loss" in entry]
    return entry["loss"], entry["grad_norm"]


@pytest.mark.parametrize("token_mean", ["step", "micro-batch"])
def test_the_loss_is_the_mean_over_a_step_or_of_micro_batches(make_recipe, token_mean):
    recipe = make_recipe(token_mean=token_mean, micro_batch=1)
    token_losses, model = compute_token_losses(recipe)
    assert [len(losses) == 1 for losses in token_losses] == [False, False, True, False]  # no answer: the end token
    row_means = torch.stack([losses.mean() for losses in token_losses])
    means = {"step": torch.cat(token_losses).mean(), "micro-batch": row_means.mean()}
    assert abs(means["step"] - means["micro-batch"]) > 1e-3
    means[token_mean].backward()
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
    assert train_one_step(recipe) == pytest.approx((means[token_mean].item(), norm.item()), rel=1e-4)


def test_a_mean_of_micro_batches_needs_their_size_also_to_resume(make_recipe):
    with pytest.raises(RecipeError, match=r"depend on training.micro_batch: set it to a number"):
        make_recipe(token_mean="micro-batch")
    finetune(make_recipe(token_mean="micro-batch", micro_batch=1))
    with pytest.raises(RecipeError, match="belong to a run with another training"):
        finetune(make_recipe(token_mean="micro-batch", micro_batch=2))
    finetune(make_recipe("step", micro_batch=1))
    finetune(make_recipe("step", micro_batch=2))


def test_rows_without_an_answer_are_kept_on_request(make_recipe):
    assert [row.answer for row in load_rows(make_recipe(data={"strip_stopwords": False}).data)] == ANSWERS
    data = {"keep_unanswered": False}
    with pytest.raises(RecipeError, match=r"row 3: .*the answer is empty; data.keep_unanswered=true keeps such rows"):
        load_rows(make_recipe(data=data).data)
    assert len(load_rows(make_recipe(data={**data, "skip_bad": True}).data)) == 3


@pytest.mark.parametrize("objective", [{"reencode_weight": 1}, {"cosine_weight": 1}])
def test_a_vector_cannot_learn_an_answer_that_is_missing(make_recipe, objective):
    with pytest.raises(RecipeError, match=r"data.keep_unanswered keeps rows whose vector has no answer"):
        make_recipe(objective=objective)
