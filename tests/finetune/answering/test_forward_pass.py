"""Each family's forward pass in training against its full logits."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from inbedder import InBedder
from inbedder.backbones.late_interaction import prepare
from inbedder_finetune.answering.examples import IGNORED, Collator
from inbedder_finetune.answering.forward_pass import pool_states, read_causal, read_masked, read_seq2seq


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
        assert pool_states(read, None).shape == (2, 32)


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
    torch.testing.assert_close(pool_states(read, "1st-gen"), torch.stack([last[0, 1], last[1, 0]]))
    torch.testing.assert_close(pool_states(read, "avg-gen"), torch.stack([last[0, 1:4].mean(0), last[1, :2].mean(0)]))


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
    assert pool_states(read, "1st-gen").shape == (2, 32)


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
    batch = Collator(tokenizer.pad_token_id, mask_id=tokenizer.mask_token_id)(examples)
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert")).eval()
    prepare(model)
    read = read_masked(model, model, batch)
    assert np.abs(pool_states(read, None).detach().numpy() - inference.encode(texts, asked)).max() < 1e-5
    assert read.labels.tolist() == [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10]
    assert read.owner.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert torch.allclose(read.logits, model.get_output_embeddings()(model.cls.predictions.transform(read.states)), atol=1e-5)
