"""Each loss against its equation in numpy, and each family's shortcut against its full logits."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from finetune.answering.examples import IGNORED, Collator
from finetune.answering.losses import (
    amortised,
    distilled,
    drawn,
    info_nce,
    pooled,
    read_causal,
    read_masked,
    read_seq2seq,
)
from finetune.answering.recipe import Objective
from inbedder import InBedder
from inbedder.backbones.late_interaction import prepare


def test_info_nce_equals_the_equation_written_out():
    rng = np.random.default_rng(0)
    vectors, targets = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    answers = [7, 8, 7, 9]
    v = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    e = targets / np.linalg.norm(targets, axis=1, keepdims=True)
    expected = 0.0
    for i in range(4):
        others = [j for j in range(4) if j == i or answers[j] != answers[i]]
        scores = np.exp([v[i] @ e[j] / 0.05 for j in others])
        expected -= np.log(scores[others.index(i)] / scores.sum()) / 4
    loss = info_nce(torch.tensor(vectors), torch.tensor(targets), torch.tensor(answers), 0.05)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_cosine_draws_each_vector_to_its_own_answer():
    rng = np.random.default_rng(1)
    v, e = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    cosines = (v * e).sum(1) / np.linalg.norm(v, axis=1) / np.linalg.norm(e, axis=1)
    batch = {"vector": torch.tensor(e), "answer": torch.arange(3)}
    far, contrast = (1 - cosines).mean(), info_nce(torch.tensor(v), torch.tensor(e), torch.arange(3), 0.05).item()
    assert amortised(torch.tensor(v), batch, Objective(reencode_loss="cosine")).item() == pytest.approx(far, rel=1e-5)
    assert amortised(torch.tensor(v), batch, Objective()).item() == pytest.approx(contrast)
    assert amortised(torch.tensor(v), batch, Objective(cosine_weight=0.5)).item() == pytest.approx(contrast + far / 2)


def test_distillation_equals_the_equation_written_out():
    rng = np.random.default_rng(2)
    v, t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rng.normal(size=(4, 3)), rng.normal(size=(4, 3))))
    wanted, found = (np.exp(x @ t.T / 0.1) / np.exp(x @ t.T / 0.1).sum(1, keepdims=True) for x in (t, v))
    alike, own = Objective(temperature=0.1), Objective(teacher_loss="cosine")
    loss = distilled(torch.tensor(v), torch.tensor(t), alike)
    assert loss.item() == pytest.approx(-(wanted * np.log(found)).sum(1).mean(), rel=1e-5)
    assert distilled(torch.tensor(t), torch.tensor(t), alike) < loss
    assert distilled(torch.tensor(3 * v), torch.tensor(t), own).item() == pytest.approx((1 - (v * t).sum(1)).mean(), rel=1e-5)


def test_answers_and_teacher_draw_with_their_weights():
    v, e, t = torch.eye(3), torch.eye(3)[[1, 2, 0]], torch.eye(3)[[2, 0, 1]]
    objective = Objective(reencode_weight=0.5, teacher_weight=2.0, temperature=1.0)
    answers = {"vector": e, "answer": torch.arange(3)}
    both = drawn(v, {**answers, "taught": t}, objective)
    assert both.item() == pytest.approx(0.5 * amortised(v, answers, objective).item() + 2 * distilled(v, t, objective).item())
    assert drawn(v, {}, objective).item() == 0
    alone = torch.tensor([[0.5, -1.0, 2.0]] * 3)
    assert drawn(v + alone, {**answers, "taught": t, "alone": alone}, objective).item() == pytest.approx(both.item())


def test_answers_that_say_nearly_the_same_are_not_each_others_negatives():
    v = torch.eye(3)[[0, 2]]
    e = torch.tensor([[1.0, 0, 0], [0, 0, 1]])
    near = torch.tensor([[0.95, 0.05, 0]])
    apart = info_nce(torch.cat([v, v[:1]]), torch.cat([e, near]), torch.arange(3), 0.05, alike=0.9)
    assert apart.item() < 1e-6
    assert info_nce(torch.cat([v, v[:1]]), torch.cat([e, near]), torch.arange(3), 0.05).item() > 0.4


def test_masked_logits_at_the_masks_equal_those_of_the_full_pass(make_model):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert")).eval()
    mask = 4
    even = [
        {"input_ids": np.array([2, 9, 10, mask, mask, 3]), "labels": np.array([11, 12])},
        {"input_ids": np.array([2, 9, mask, mask, 3]), "labels": np.array([13, 3])},
    ]
    uneven = [even[0], {"input_ids": np.array([2, mask, 3]), "labels": np.array([13])}]
    for examples, labels in ((even, [11, 12, 13, 3]), (uneven, [11, 12, 13])):
        batch = Collator(0, mask_id=mask)(examples)
        full = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[batch["input_ids"] == mask]
        read = read_masked(model, model, batch)
        assert read.labels.tolist() == labels
        torch.testing.assert_close(read.logits, full)
        assert pooled(read, None).shape == (2, 32)


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama", "qwen2", "mistral"])
def test_causal_logits_are_those_that_predict_the_answer(make_model, family):
    model = AutoModelForCausalLM.from_pretrained(make_model(family)).eval()
    examples = [
        {"input_ids": np.array([5, 6, 7, 8, 2]), "labels": np.array([IGNORED, IGNORED, 7, 8, 2])},
        {"input_ids": np.array([5, 9, 2]), "labels": np.array([IGNORED, 9, 2])},
    ]
    batch = Collator(1)(examples)
    out = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"], output_hidden_states=True
    )
    read = read_causal(model, model, batch)
    assert read.labels.tolist() == [7, 8, 2, 9, 2]
    assert cross_entropy(read.logits, read.labels).item() == pytest.approx(out.loss.item(), rel=1e-5)
    last = out.hidden_states[-1]
    torch.testing.assert_close(pooled(read, "1st-gen"), torch.stack([last[0, 1], last[1, 0]]))
    torch.testing.assert_close(pooled(read, "avg-gen"), torch.stack([last[0, 1:4].mean(0), last[1, :2].mean(0)]))


def test_the_encoder_decoders_loss_is_transformers_own(make_model):
    model = AutoModelForSeq2SeqLM.from_pretrained(make_model("t5")).eval()
    examples = [
        {"input_ids": np.array([5, 6, 2]), "labels": np.array([7, 8, 2])},
        {"input_ids": np.array([5, 2]), "labels": np.array([9, 2])},
    ]
    batch = Collator(0)(examples)
    loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"]).loss
    read = read_seq2seq(model, model, batch)
    assert cross_entropy(read.logits, read.labels).item() == pytest.approx(loss.item(), rel=1e-5)
    assert pooled(read, "1st-gen").shape == (2, 32)


def test_text_and_question_read_apart_learn_from_what_inference_reads(make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "apart")
    (folder / "inbedder.json").write_text(json.dumps({"template": "compact", "late_interaction": True}))
    inference = InBedder(folder)
    texts, asked = ["I love cats", "I love cats", "dogs bark", "I love cats"], ["Why?", "Who loves?", "Why?", "Why?"]
    prompts = inference.tokenizer(texts, asked)
    examples = [
        {"input_ids": prompt.ids, "labels": np.array([5, 6, 7 + number]), "split": prompt.instruction[0]}
        for number, prompt in enumerate(prompts)
    ]
    tokenizer = inference.backbone.tokenizer
    batch = Collator(tokenizer.pad_token_id, None, mask_id=tokenizer.mask_token_id)(examples)
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert")).eval()
    prepare(model)
    read = read_masked(model, model, batch)
    assert np.abs(pooled(read, None).detach().numpy() - inference.encode(texts, asked)).max() < 1e-5
    assert read.labels.tolist() == [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10]
    assert read.owner.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert torch.allclose(read.logits, model.get_output_embeddings()(model.cls.predictions.transform(read.states)), atol=1e-5)
