"""Forward passes of each family in training, compared with the full logits."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from inbedder import InBedder
from inbedder_finetune.answering.examples import IGNORE_INDEX, Collator
from inbedder_finetune.answering.forward_pass import (
    forward_causal,
    forward_late_interaction,
    forward_masked,
    forward_seq2seq,
    pool_states,
)


def test_masked_logits_equal_those_of_the_full_pass(make_model):
    model = AutoModelForMaskedLM.from_pretrained(make_model("bert")).eval()
    mask = 4
    equal_lengths = [
        {"input_ids": np.array([2, 9, 10, mask, mask, 3]), "labels": np.array([11, 12])},
        {"input_ids": np.array([2, 9, mask, mask, 3]), "labels": np.array([13, 3])},
    ]
    unequal_lengths = [equal_lengths[0], {"input_ids": np.array([2, mask, 3]), "labels": np.array([13])}]
    for examples, labels in ((equal_lengths, [11, 12, 13, 3]), (unequal_lengths, [11, 12, 13])):
        batch = Collator(0, mask_id=mask)(examples)
        full = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[batch["input_ids"] == mask]
        output = forward_masked(model, model, batch)
        assert output.labels.tolist() == labels
        torch.testing.assert_close(output.logits, full)
        assert pool_states(output, None).shape == (2, 32)


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama", "qwen2", "mistral"])
def test_causal_logits_predict_the_answer(make_model, family):
    model = AutoModelForCausalLM.from_pretrained(make_model(family)).eval()
    examples = [
        {"input_ids": np.array([5, 6, 7, 8, 2]), "labels": np.array([IGNORE_INDEX, IGNORE_INDEX, 7, 8, 2])},
        {"input_ids": np.array([5, 9, 2]), "labels": np.array([IGNORE_INDEX, 9, 2])},
    ]
    batch = Collator(1)(examples)
    reference = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"], output_hidden_states=True
    )
    output = forward_causal(model, model, batch)
    assert output.labels.tolist() == [7, 8, 2, 9, 2]
    assert cross_entropy(output.logits, output.labels).item() == pytest.approx(reference.loss.item(), rel=1e-5)
    last = reference.hidden_states[-1]
    torch.testing.assert_close(pool_states(output, "1st-gen"), torch.stack([last[0, 1], last[1, 0]]))
    torch.testing.assert_close(pool_states(output, "avg-gen"), torch.stack([last[0, 1:4].mean(0), last[1, :2].mean(0)]))


def test_the_encoder_decoders_loss_is_that_of_transformers(make_model):
    model = AutoModelForSeq2SeqLM.from_pretrained(make_model("t5")).eval()
    examples = [
        {"input_ids": np.array([5, 6, 2]), "labels": np.array([7, 8, 2])},
        {"input_ids": np.array([5, 2]), "labels": np.array([9, 2])},
    ]
    batch = Collator(0)(examples)
    loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"]).loss
    output = forward_seq2seq(model, model, batch)
    assert cross_entropy(output.logits, output.labels).item() == pytest.approx(loss.item(), rel=1e-5)
    assert pool_states(output, "1st-gen").shape == (2, 32)


def test_late_interaction_has_the_vectors_and_states_of_inference(late_adapter):
    inference = InBedder(late_adapter)
    texts, questions = ["I love cats", "I love cats", "dogs bark", "I love cats"], ["Why?", "Who loves?", "Why?", "Why?"]
    prompts = inference.tokenizer(texts, questions)
    examples = [
        {"input_ids": prompt.ids, "labels": np.array([5, 6, 7 + number]), "split": prompt.instruction[0]}
        for number, prompt in enumerate(prompts)
    ]
    tokenizer, model = inference.backbone.tokenizer, inference.backbone.model
    batch = Collator(tokenizer.pad_token_id, mask_id=tokenizer.mask_token_id)(examples)
    output = forward_late_interaction(model, model, batch, inference.backbone.text_body)
    assert np.abs(pool_states(output, None).detach().numpy() - inference.encode(texts, questions)).max() < 1e-5
    assert output.labels.tolist() == [5, 6, 7, 5, 6, 8, 5, 6, 9, 5, 6, 10]
    assert output.owner.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert torch.allclose(output.logits, model.get_output_embeddings()(model.cls.predictions.transform(output.states)), atol=1e-5)
